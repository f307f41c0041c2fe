#include "draw.hpp"
#include "svg.hpp"
#include "usage.hpp"

#include <stretto/timeline.hpp>

#include <algorithm>
#include <sstream>

#include <fmt/format.h>

namespace plan_program {

namespace {

using stretto::op;

constexpr std::size_t most_ops = 40000;
constexpr double left = 64, top = 92, row_step = 40, most_width = 4000;

void refuse_too_many(phase_replay const& one, char const* format, char const* instead, std::size_t most) {
  std::size_t ops = 0;
  for (stretto::flat_table const& table : one.tables) ops += table.ops.size();
  if (ops > most) {
    throw usage_error(
        fmt::format("--format {} draws at most {} ops and this replay has {}; take {}fewer layers, "
                    "ranks or microbatches",
                    format, most, ops, instead));
  }
}

std::string title(phase_replay const& one) {
  return fmt::format("{}, {}", title_of(one.facts), counted(one.layers, "layer", "layers"));
}

} // namespace

std::string draw_svg(phase_replay const& one, layer_costs const& costs) {
  refuse_too_many(one, "svg", "--format trace, or ", most_ops);
  double shortest = one.makespan;
  for (auto const& rank : one.times)
    for (stretto::op_times const& each : rank)
      if (each.end > each.start) shortest = std::min(shortest, each.end - each.start);
  double const scale = std::clamp(3 / shortest, 560 / one.makespan, most_width / one.makespan);
  double const width = std::max(left + one.makespan * scale + 24, 900.0),
               foot = top + row_step * one.facts.ranks;
  canvas to(width, foot + 34);
  to.words(left, 24, 16, "#000000", "start", title(one));
  to.words(
      left, 44, 12, "#444444", "start",
      fmt::format("makespan {} {}, {:.3f} of ideal; numbers are microbatches; of each rank compute above, "
                  "communication below",
                  short_number(one.makespan), costs.unit, one.makespan / one.ideal));
  to.text += '\n';
  double x = left;
  for (stretto::pass const what : {stretto::pass::forward, stretto::pass::backward,
                                   stretto::pass::backward_input, stretto::pass::backward_weight}) {
    auto const runs = [&](op const& row) { return !row.is_message() && row.what == what; };
    auto const in = [&](stretto::flat_table const& table) {
      return std::any_of(table.ops.begin(), table.ops.end(), runs);
    };
    if (std::any_of(one.tables.begin(), one.tables.end(), in))
      x = to.entry(x, 56, look_of(what), look_of(what).name);
  }
  if (one.facts.chunks > 1)
    to.entry(x, 56, forward_look, one.facts.chunks == 2 ? "second chunk" : "odd chunks", true);
  for (int rank = 0; rank < one.facts.ranks; ++rank) {
    auto const at = static_cast<std::size_t>(rank);
    lane_rows const rows{left, top + row_step * rank, scale, costs.unit};
    to.words(left - 8, rows.top + lane_rows::lane_height + 4, 12, "#222222", "end",
             fmt::format("rank {}", rank));
    to.frame(rows, one.makespan);
    std::vector<stretto::span> const spans = one.spans(rank);
    for (std::size_t row = 0; row < spans.size(); ++row)
      if (!stretto::is_message(spans[row].label) && spans[row].end_us > spans[row].start_us)
        to.op(rows, spans[row], one.tables[at].ops[row].chunk % 2 == 1);
  }
  to.axis(left, foot + 16, scale, one.makespan, costs.unit);
  return to.finish();
}

std::string draw_trace(phase_replay const& one, layer_costs const& costs) {
  refuse_too_many(one, "trace", "", 400'000);
  std::vector<stretto::span> spans;
  for (int rank = 0; rank < one.facts.ranks; ++rank) {
    for (stretto::span each : one.spans(rank)) {
      constexpr double scale = 1000; // the format counts in microseconds
      each.start_us *= scale, each.end_us *= scale;
      if (!stretto::is_send(each.label.on)) spans.push_back(each);
    }
  }
  std::ostringstream out;
  stretto::write_chrome_trace(out, spans, title(one) + "; modelled with " + costs.name);
  return out.str();
}

} // namespace plan_program
