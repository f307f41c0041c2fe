#pragma once

#include <stretto/detail/cxx20.hpp>

namespace stretto {
inline namespace v0 {
namespace detail {

/// The extent of an array of `n` elements, where C++ has no arrays of none.
constexpr unsigned extent(int n) { return n > 0 ? static_cast<unsigned>(n) : 1U; }

} // namespace detail
} // namespace v0
} // namespace stretto
