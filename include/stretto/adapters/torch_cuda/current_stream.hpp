#pragma once

#include <stretto/detail/cxx20.hpp>

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

namespace stretto {
inline namespace v0 {
namespace torch_cuda {

/// Makes torch launch and allocate on a lane's stream: the `Follow` of `cuda::lanes`, and the `Current` of exchanges and
/// messages. A backward that autograd runs with the same stream current as its forward adds no wait of its
/// own, and memory goes back to the lane that made it.
struct current_stream {
  c10::cuda::CUDAStreamGuard enter(cudaStream_t on) const {
    return c10::cuda::CUDAStreamGuard(c10::cuda::getStreamFromExternal(on, c10::cuda::current_device()));
  }
  cudaStream_t current() const { return c10::cuda::getCurrentCUDAStream().stream(); }
};

} // namespace torch_cuda
} // namespace v0
} // namespace stretto
