#include "draw.hpp"
#include "notation.hpp"
#include "usage.hpp"

#include "../shared/svg.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace plan_program {

namespace {

using examples::backward_look;
using examples::canvas;
using examples::forward_look;
using examples::input_look;
using examples::look;
using examples::weight_look;

constexpr long most_calls = 20000;
constexpr double left = 64, top = 92, row_height = 34, row_step = 40, most_width = 20000;

look of_backward(stretto::call const& one) {
  return one.runs_backward() ? backward_look : one.runs_input() ? input_look : weight_look;
}

/// Pixels per unit of time: the shortest call shows its microbatch, within limits.
double scale_of(picture const& one) {
  double shortest = one.run.makespan();
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    for (long at = 0; at < one.of.size(rank); ++at) {
      double const length = one.finish(rank, at) - one.start(rank, at);
      if (length > 0) shortest = std::min(shortest, length);
    }
  }
  std::size_t const digits = fmt::format("{}", one.facts().microbatches - 1).size();
  double const wanted = (12 + 7 * static_cast<double>(digits)) / shortest;
  return std::clamp(wanted, 560 / one.run.makespan(), most_width / one.run.makespan());
}

void draw_call(canvas& to, picture const& one, int rank, long at, double scale) {
  stretto::call const& call = one.of.calls(rank)[at];
  double const x = left + one.start(rank, at) * scale, y = top + row_step * rank;
  double const width = std::max((one.finish(rank, at) - one.start(rank, at)) * scale - 1, 0.4);
  to.text +=
      fmt::format("<g><title>{}: {} to {} {}</title>", token(one.facts(), rank, call),
                  short_number(one.start(rank, at)), short_number(one.finish(rank, at)), one.costs.unit);
  auto const label = [](int microbatch) { return fmt::format("{}", microbatch); };
  if (call.what == stretto::form::forward_backward) {
    double const half = row_height / 2;
    to.box(x, y, width, half - 0.5, forward_look, call.forward_chunk % 2 == 1, label(call.forward_microbatch),
           11);
    to.box(x, y + half + 0.5, width, half - 0.5, backward_look, call.backward_chunk % 2 == 1,
           label(call.backward_microbatch), 11);
  } else if (call.what == stretto::form::forward) {
    to.box(x, y, width, row_height, forward_look, call.forward_chunk % 2 == 1, label(call.forward_microbatch),
           12);
  } else {
    to.box(x, y, width, row_height, of_backward(call), call.backward_chunk % 2 == 1,
           label(call.backward_microbatch), 12);
  }
  to.text += "</g>\n";
}

void draw_legend(canvas& to, picture const& one) {
  double x = left;
  bool uses[5] = {};
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    for (long at = 0; at < one.of.size(rank); ++at)
      uses[static_cast<int>(one.of.calls(rank)[at].what)] = true;
  }
  auto const entry = [&](look const& how, bool odd_chunk, char const* name) {
    x = to.entry(x, 56, how, name, odd_chunk);
  };
  auto const has = [&](stretto::form what) { return uses[static_cast<int>(what)]; };
  entry(forward_look, false, forward_look.name);
  if (has(stretto::form::backward) || has(stretto::form::forward_backward))
    entry(backward_look, false, backward_look.name);
  if (has(stretto::form::backward_input)) entry(input_look, false, input_look.name);
  if (has(stretto::form::backward_weight)) entry(weight_look, false, weight_look.name);
  if (one.facts().chunks > 1)
    entry(forward_look, true, one.facts().chunks == 2 ? "second chunk" : "odd chunks");
  if (has(stretto::form::forward_backward)) {
    to.box(x, 56, 18, 7.5, forward_look, false, "", 0);
    to.box(x, 64.5, 18, 7.5, backward_look, false, "", 0);
    to.words(x + 24, 69, 12, "#222222", "start", "overlapped pair");
  }
}

} // namespace

std::string draw_svg(picture const& one) {
  if (one.of.size() > most_calls) {
    throw usage_error(
        fmt::format("--format svg draws at most {} calls and this plan has {}; take --format trace, or fewer "
                    "ranks and microbatches",
                    most_calls, one.of.size()));
  }
  double const scale = scale_of(one), length = one.run.makespan() * scale;
  double const width = std::max(left + length + 24, 900.0), foot = top + row_step * one.facts().ranks;
  canvas to(width, foot + 34);
  to.words(left, 24, 16, "#000000", "start", one.title());
  to.words(left, 44, 12, "#444444", "start", one.summary());
  to.text += '\n';
  draw_legend(to, one);
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    double const y = top + row_step * rank;
    to.words(left - 8, y + row_height / 2 + 4, 12, "#222222", "end", fmt::format("rank {}", rank));
    to.text +=
        fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"none\" stroke=\"#d0d0d0\"/>\n",
                    short_number(left), short_number(y), short_number(length), short_number(row_height));
    for (long at = 0; at < one.of.size(rank); ++at) draw_call(to, one, rank, at, scale);
  }
  to.axis(left, foot + 16, scale, one.run.makespan(), one.costs.unit);
  return to.finish();
}

} // namespace plan_program
