#pragma once

#include <stretto/detail/config.hpp>

#include <utility>

// A lambda is not inlined at -O1 unless it says so, and straight-line code is the point.
#define STRETTO_INLINE_LAMBDA __attribute__((always_inline))

namespace stretto {
inline namespace v0 {
namespace detail {

template <int First, int... Index>
std::integer_sequence<int, First + Index...> numbers_from(std::integer_sequence<int, Index...>);

/// The numbers from `First` up to `End` (excluded), for one pack expansion instead of a loop.
template <int First, int End>
using numbers =
    decltype(numbers_from<First>(std::make_integer_sequence<int, (End > First ? End - First : 0)>{}));

} // namespace detail
} // namespace v0
} // namespace stretto
