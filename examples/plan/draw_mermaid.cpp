#include "draw.hpp"
#include "notation.hpp"
#include "usage.hpp"

#include <cmath>

#include <fmt/format.h>

namespace plan_program {

namespace {

constexpr long most_calls = 2000;

/// Mermaid has four looks for a bar; pairs and forwards keep the plain one and its highlight.
char const* look(stretto::call const& one) {
  switch (one.what) {
  case stretto::form::forward_backward:
    return "active, ";
  case stretto::form::forward:
    return "";
  case stretto::form::backward:
  case stretto::form::backward_input:
    return "done, ";
  case stretto::form::backward_weight:
    return "crit, ";
  }
  return "";
}

} // namespace

std::string draw_mermaid(picture const& one) {
  if (one.of.size() > most_calls) {
    throw usage_error(fmt::format(
        "--format mermaid draws at most {} calls and this plan has {}; take --format svg, or fewer "
        "ranks and microbatches",
        most_calls, one.of.size()));
  }
  // Compact mode keeps a rank on one row where its bars do not overlap. Mermaid's dates are whole seconds: a thousand of them for the whole step keeps every bar in proportion.
  double const scale = one.costs.unit == "units" ? 1 : 1000 / one.run.makespan();
  std::string text = fmt::format(
      "---\ndisplayMode: compact\n---\ngantt\n  title {}\n  dateFormat X\n  axisFormat %s\n", one.title());
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    text += fmt::format("  section rank {}\n", rank);
    for (long at = 0; at < one.of.size(rank); ++at) {
      stretto::call const& call = one.of.calls(rank)[at];
      text +=
          fmt::format("  {} : {}{}, {}\n", token(one.facts(), rank, call), look(call),
                      std::lround(one.start(rank, at) * scale), std::lround(one.finish(rank, at) * scale));
    }
  }
  return text;
}

} // namespace plan_program
