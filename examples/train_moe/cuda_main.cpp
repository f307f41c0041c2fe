#include "gpu/cuda_device.hpp"

namespace train_moe {
namespace {

/// What tells this program from the one without CUDA; `main` is the same.
[[maybe_unused]] run_device const* const linked = cuda_device() = &all_gpus();

} // namespace
} // namespace train_moe
