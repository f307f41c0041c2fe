#pragma once

#include <iterator>
#include <string>

#include <stretto/phase.hpp>
#include <stretto/timeline.hpp>

namespace examples {

/// Fills whose grey values lie apart (0.87, 0.75, 0.50, 0.22), in hues that red-green blindness keeps apart.
struct look {
  char const* fill;
  char const* ink;
  char const* name;
};
inline constexpr look forward_look{"#cfe2f3", "#10202e", "F forward"};
inline constexpr look input_look{"#f6b26b", "#2b1600", "I input gradients"};
inline constexpr look backward_look{"#cc6a28", "#000000", "B backward (I and W)"};
inline constexpr look weight_look{"#45286e", "#ffffff", "W weight gradients"};

constexpr look look_of(stretto::pass what) {
  constexpr look all[] = {forward_look, backward_look, input_look, weight_look};
  return all[static_cast<int>(what)];
}

/// Where the ops of one rank go: compute above, communication below.
struct lane_rows {
  double left, top, scale;
  std::string const& unit;

  static constexpr double lane_height = 15, height = 2 * lane_height + 1;
};

/// The text of a picture, as it grows.
class canvas {
public:
  canvas(double width, double height);
  void box(double x, double y, double width, double height, look const& how, bool odd_chunk,
           std::string const& label, double font);
  void words(double x, double y, double font, char const* ink, char const* anchor, std::string const& what);
  /// The frame of a rank that takes `length`.
  void frame(lane_rows const& at, double length);
  void op(lane_rows const& at, stretto::span const& one, bool odd_chunk);
  /// An entry of the legend; returns where the next one goes.
  double entry(double x, double y, look const& how, char const* name, bool odd_chunk = false);
  /// Times along the foot.
  void axis(double left, double y, double scale, double last, std::string const& unit);
  std::string finish() const { return text + "\n</svg>\n"; }
  std::string text;

private:
  std::back_insert_iterator<std::string> to_ = std::back_inserter(text);
};

} // namespace examples
