#pragma once

#include <stretto/detail/cxx20.hpp>

namespace stretto {
inline namespace v0 {

/// Splits the backward of every node with weights into I (input gradients) and W (weight gradients), so that a policy can
/// place W where it hides something (zero-bubble pipelines, arXiv 2401.10241).
struct SplitDW {};

} // namespace v0
} // namespace stretto
