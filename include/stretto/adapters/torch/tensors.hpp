#pragma once

#include <stretto/adapters/torch/checked_tensors.hpp>

namespace stretto {
inline namespace v0 {
namespace torch {

/// `at::Tensor` with torch's autograd engine. Where `assert` checks, so does this: what phases say they save is held against
/// what they keep. Two types, so that objects compiled either way may be linked together.
#ifdef NDEBUG
using tensors = unchecked_tensors;
#else
using tensors = checked_tensors;
#endif

} // namespace torch
} // namespace v0
} // namespace stretto
