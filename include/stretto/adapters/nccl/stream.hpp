#pragma once

#include <stretto/adapters/nccl/error.hpp>

#include <concepts>
#include <cstddef>

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

/// Device memory for calls on one stream, behind which it goes back: to free it would wait for a rank that is silent. Zeros, so
/// that nothing is sent that nobody has written.
class stream_memory {
public:
  stream_memory(cudaStream_t on, std::size_t bytes) : on_(on) {
    check(cudaMallocAsync(&data_, bytes, on), "cudaMallocAsync");
    auto const filled = cudaMemsetAsync(data_, 0, bytes, on);
    if (filled != cudaSuccess) static_cast<void>(cudaFreeAsync(data_, on));
    check(filled, "cudaMemsetAsync");
  }
  stream_memory(stream_memory const&) = delete;
  stream_memory& operator=(stream_memory const&) = delete;
  ~stream_memory() { static_cast<void>(cudaFreeAsync(data_, on_)); }

  char* data() const noexcept { return static_cast<char*>(data_); }

private:
  cudaStream_t on_;
  void* data_ = nullptr;
};

/// An event, without timing unless it is told otherwise.
class mark {
public:
  explicit mark(unsigned flags = cudaEventDisableTiming) {
    check(cudaEventCreateWithFlags(&handle_, flags), "cudaEventCreateWithFlags");
  }
  mark(mark const&) = delete;
  mark& operator=(mark const&) = delete;
  ~mark() { static_cast<void>(cudaEventDestroy(handle_)); }

  cudaEvent_t get() const noexcept { return handle_; }
  void record(cudaStream_t on) const { check(cudaEventRecord(handle_, on), "cudaEventRecord"); }
  void wait(cudaStream_t on) const { check(cudaStreamWaitEvent(on, handle_, 0), "cudaStreamWaitEvent"); }
  /// Whether what was issued before the last record is over.
  bool is_over() const {
    auto const found = cudaEventQuery(handle_);
    if (found == cudaErrorNotReady) {
      static_cast<void>(cudaGetLastError());
      return false;
    }
    check(found, "cudaEventQuery");
    return true;
  }
  /// What is issued on `later` from now on runs behind what was issued on `earlier`.
  void order(cudaStream_t earlier, cudaStream_t later) const {
    record(earlier);
    wait(later);
  }

private:
  cudaEvent_t handle_ = nullptr;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
