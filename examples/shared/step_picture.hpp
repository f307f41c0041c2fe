#pragma once

#include <stretto/timeline.hpp>

#include <string>
#include <vector>

namespace examples {

/// An op and the chunk of its rank that it belongs to; its times count from the beginning of the step, in the picture's unit.
struct drawn_op {
  stretto::span what;
  int chunk = 0;
};

/// A band of a picture: the ops of one rank over time, compute above and communication below. Messages are left out.
struct step_band {
  double length = 0; ///< of the step
  std::vector<drawn_op> ops;
};

/// Steps of several ranks along one axis. Every rank has as many bands as the others, which are compared.
struct step_picture {
  std::string title;
  std::vector<std::string> notes; ///< lines under the title
  std::string unit;
  double scale = 1; ///< points a unit of time
  int chunks = 1; ///< of a rank
  std::vector<std::vector<step_band>> ranks;
};

std::string draw_svg(step_picture const& one);

} // namespace examples
