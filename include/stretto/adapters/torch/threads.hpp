#pragma once

#include <stretto/detail/cxx20.hpp>

#include <ATen/Parallel.h>

namespace stretto {
inline namespace v0 {
namespace torch {

/// Start hook for a lane's worker thread: one intra-op thread, because the number of threads changes the order of
/// sums. Call it on the main thread too, and before any tensor work.
inline void use_one_thread() { at::set_num_threads(1); }

} // namespace torch
} // namespace v0
} // namespace stretto
