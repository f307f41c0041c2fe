#pragma once

#include <stretto/detail/config.hpp>

#include <utility>

// A lambda is not inlined at -O1 unless it says so, and straight-line code is the point.
#define STRETTO_INLINE_LAMBDA __attribute__((always_inline))

namespace stretto {
inline namespace v0 {
namespace detail {

template <int First, class F, int... Index>
STRETTO_ALWAYS_INLINE constexpr void each_of(F&& f, std::integer_sequence<int, Index...>) {
  using expand = int[];
  (void)expand{0, (f(std::integral_constant<int, First + Index>{}), 0)...};
}

/// Calls `f` with the numbers from `First` up to `End` (excluded) as constants: one pack expansion, no loop.
template <int First, int End, class F> STRETTO_ALWAYS_INLINE constexpr void each(F&& f) {
  each_of<First>(f, std::make_integer_sequence<int, (End > First ? End - First : 0)>{});
}
/// The same, from the last number down.
template <int First, int End, class F> STRETTO_ALWAYS_INLINE constexpr void each_backwards(F&& f) {
  each<First, End>([&f](auto i) STRETTO_INLINE_LAMBDA {
    f(std::integral_constant<int, First + End - 1 - decltype(i)::value>{});
  });
}

}  // namespace detail
}  // namespace v0
}  // namespace stretto
