#include "numbers.hpp"

#include <cmath>

#include <fmt/format.h>

namespace examples {

std::string short_number(double value) {
  std::string text = fmt::format("{:.3f}", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

double round_step(double least) {
  double const power = std::pow(10, std::floor(std::log10(least)));
  for (double const step : {1.0, 2.0, 5.0}) {
    if (step * power >= least) return step * power;
  }
  return 10 * power;
}

} // namespace examples
