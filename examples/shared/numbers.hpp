#pragma once

#include <string>

namespace examples {

/// A number with as many of three decimals as it needs.
std::string short_number(double value);

/// The smallest of 1, 2, 5, 10, ... times a power of ten that is at least `least`: the step of an axis.
double round_step(double least);

} // namespace examples
