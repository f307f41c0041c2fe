#pragma once

#include <stretto/adapters/nccl/error.hpp>

#include <concepts>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// Says on which stream this thread issues: `cuda::thread_stream`, `torch_cuda::current_stream` or one's own.
template <class Source>
concept stream_source = requires(Source const& source) {
  { source.current() } -> std::same_as<cudaStream_t>;
};

/// A stream of the current device beside those of the lanes, of the highest priority.
class side_stream {
public:
  side_stream() {
    int lowest = 0, highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking, highest),
          "cudaStreamCreateWithPriority");
  }
  side_stream(side_stream const&) = delete;
  side_stream& operator=(side_stream const&) = delete;
  ~side_stream() { static_cast<void>(cudaStreamDestroy(handle_)); }

  cudaStream_t get() const noexcept { return handle_; }

private:
  cudaStream_t handle_ = nullptr;
};

/// An event without timing.
class mark {
public:
  mark() { check(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming), "cudaEventCreateWithFlags"); }
  mark(mark const&) = delete;
  mark& operator=(mark const&) = delete;
  ~mark() { static_cast<void>(cudaEventDestroy(handle_)); }

  /// What is issued on `later` from now on runs behind what was issued on `earlier`.
  void order(cudaStream_t earlier, cudaStream_t later) const {
    check(cudaEventRecord(handle_, earlier), "cudaEventRecord");
    check(cudaStreamWaitEvent(later, handle_, 0), "cudaStreamWaitEvent");
  }

private:
  cudaEvent_t handle_ = nullptr;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
