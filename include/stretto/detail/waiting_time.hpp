#pragma once

#include <stretto/detail/cxx20.hpp>

#include <chrono>

namespace stretto {
inline namespace v0 {
namespace detail {

/// A time to wait as the steady clock counts it. More than a hundred years, such as the most that a duration can be, is as long as
/// that: the clock would go round.
template <class Count, class Unit>
constexpr std::chrono::steady_clock::duration waiting_time(std::chrono::duration<Count, Unit> given) {
  using counted = std::chrono::steady_clock::duration;
  constexpr std::chrono::hours longest(24 * 365 * 100);
  return given < longest ? std::chrono::duration_cast<counted>(given) : longest;
}

/// The same in whole milliseconds, for options.
struct waiting_milliseconds : std::chrono::milliseconds {
  template <class Count, class Unit>
  constexpr waiting_milliseconds(std::chrono::duration<Count, Unit> given)
      : std::chrono::milliseconds(
            std::chrono::duration_cast<std::chrono::milliseconds>(waiting_time(given))) {}
};

} // namespace detail
} // namespace v0
} // namespace stretto
