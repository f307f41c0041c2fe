#pragma once

#include <stretto/detail/cxx20.hpp>

/// How much the tables of fixed size hold, so that proofs stay cheap; what needs more is refused by name (E17).
namespace stretto {
inline namespace v0 {

inline constexpr int max_phases = 8; ///< phases, and nodes, of one block
inline constexpr int max_values = 16; ///< values written inside one block
inline constexpr int max_reads = 22; ///< (phase, value) reads of one block
inline constexpr int max_carried = 4; ///< values that cross from layer to layer
inline constexpr int max_limited = 4; ///< of a model: what allows so many microbatches in flight and no more
inline constexpr int max_in_flight = 32767; ///< a larger allowance counts as this one

} // namespace v0
} // namespace stretto
