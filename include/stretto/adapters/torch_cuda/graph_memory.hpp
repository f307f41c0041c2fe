#pragma once

#include <stretto/detail/cxx20.hpp>

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>

#include <thread>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace torch_cuda {

/// Memory for the tensors of a captured step, the `Memory` of `cuda::step_graph`: a pool of torch's allocator that nothing
/// else uses, on the device that is current when this is made. A tensor of the step that lives on after the capture (a loss)
/// has its address, and new contents after every replay.
class graph_memory {
public:
  class lent {
  public:
    lent(c10::DeviceIndex device, c10::MempoolId_t pool) : device_(device), pool_(pool) {}
    ~lent() { c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_); }
    lent(lent const&) = delete;
    lent& operator=(lent const&) = delete;

  private:
    c10::DeviceIndex device_;
    c10::MempoolId_t pool_;
  };

  graph_memory() = default;
  graph_memory(graph_memory&& other) noexcept
      : device_(other.device_), pool_(other.pool_), uses_(std::exchange(other.uses_, 0)) {}
  graph_memory& operator=(graph_memory&&) = delete;
  ~graph_memory() {
    for (; uses_ > 0; --uses_) c10::cuda::CUDACachingAllocator::releasePool(device_, pool_);
  }

  /// For what this thread allocates. The lanes join the capture while it goes on, so that streams are told by their capture.
  lent lend(cudaStream_t capturing) {
    unsigned long long const mine = capture_of(capturing);
    auto const here = std::this_thread::get_id();
    c10::cuda::CUDACachingAllocator::beginAllocateToPool(device_, pool_, [mine, here](cudaStream_t on) {
      return mine != 0 && std::this_thread::get_id() == here && capture_of(on) == mine;
    });
    ++uses_;
    return {device_, pool_};
  }

private:
  /// Of a stream, 0 where it is not captured.
  static unsigned long long capture_of(cudaStream_t on) {
    auto status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    if (cudaStreamGetCaptureInfo(on, &status, &id) != cudaSuccess) static_cast<void>(cudaGetLastError());
    return status == cudaStreamCaptureStatusActive ? id : 0;
  }

  c10::DeviceIndex device_ = c10::cuda::current_device();
  c10::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  int uses_ = 0;
};

} // namespace torch_cuda
} // namespace v0
} // namespace stretto
