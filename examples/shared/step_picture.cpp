#include "step_picture.hpp"

#include "svg.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace examples {
namespace {

constexpr double left = 64, band_step = 36, note_step = 18;

bool is_drawn(stretto::span const& op) { return !stretto::is_message(op.label) && op.end_us > op.start_us; }

bool draws(step_picture const& one, stretto::pass what) {
  for (auto const& rank : one.ranks)
    for (step_band const& band : rank)
      for (drawn_op const& op : band.ops)
        if (op.what.label.what == what && is_drawn(op.what)) return true;
  return false;
}

} // namespace

std::string draw_svg(step_picture const& one) {
  double longest = 0;
  for (auto const& rank : one.ranks)
    for (step_band const& band : rank) longest = std::max(longest, band.length);
  auto const bands = static_cast<double>(one.ranks.front().size());
  double const legend = 38 + note_step * static_cast<double>(one.notes.size()), top = legend + 36;
  double const rank_step = bands * (band_step + 8) - 4;
  double const foot = top + rank_step * static_cast<double>(one.ranks.size());
  canvas to(std::max(left + longest * one.scale + 24, 900.0), foot + 34);
  to.words(left, 24, 16, "#000000", "start", one.title);
  for (std::size_t line = 0; line < one.notes.size(); ++line)
    to.words(left, 44 + note_step * static_cast<double>(line), 12, "#444444", "start", one.notes[line]);
  to.text += '\n';
  double x = left;
  for (stretto::pass const what : {stretto::pass::forward, stretto::pass::backward,
                                   stretto::pass::backward_input, stretto::pass::backward_weight})
    if (draws(one, what)) x = to.entry(x, legend, look_of(what), look_of(what).name);
  if (one.chunks > 1)
    to.entry(x, legend, forward_look, one.chunks == 2 ? "second chunk" : "odd chunks", true);
  for (std::size_t rank = 0; rank < one.ranks.size(); ++rank) {
    double const begin = top + rank_step * static_cast<double>(rank);
    to.words(left - 8, begin + bands * (lane_rows::lane_height + 4), 12, "#222222", "end",
             fmt::format("rank {}", rank));
    for (std::size_t band = 0; band < one.ranks[rank].size(); ++band) {
      step_band const& each = one.ranks[rank][band];
      lane_rows const rows{left, begin + band_step * static_cast<double>(band), one.scale, one.unit};
      to.frame(rows, each.length);
      for (drawn_op const& op : each.ops)
        if (is_drawn(op.what)) to.op(rows, op.what, op.chunk % 2 == 1);
    }
  }
  to.axis(left, foot + 16, one.scale, longest, one.unit);
  return to.finish();
}

} // namespace examples
