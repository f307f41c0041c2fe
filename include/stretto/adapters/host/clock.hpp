#pragma once

#include <stretto/detail/cxx20.hpp>

#include <chrono>

namespace stretto {
inline namespace v0 {
namespace host {

using clock = std::chrono::steady_clock;

/// Microseconds since a moment that all threads of the process share, so that the times of all ranks can be compared.
inline double microseconds_of(clock::time_point when) {
  static clock::time_point const start = clock::now();
  return std::chrono::duration<double, std::micro>(when - start).count();
}
inline double now_us() { return microseconds_of(clock::now()); }

inline clock::duration duration_of_us(double microseconds) {
  return std::chrono::duration_cast<clock::duration>(std::chrono::duration<double, std::micro>(microseconds));
}

} // namespace host
} // namespace v0
} // namespace stretto
