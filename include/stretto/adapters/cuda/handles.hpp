#pragma once

#include <stretto/adapters/cuda/error.hpp>

#include <cstddef>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {

enum class urgency : unsigned char { usual, high };

/// A stream of the current device that does not wait for the legacy default stream.
class stream {
public:
  explicit stream(urgency how = urgency::usual) {
    int lowest = 0, highest = 0;
    check(cudaDeviceGetStreamPriorityRange(&lowest, &highest), "cudaDeviceGetStreamPriorityRange");
    check(cudaStreamCreateWithPriority(&handle_, cudaStreamNonBlocking,
                                       how == urgency::high ? highest : lowest),
          "cudaStreamCreateWithPriority");
  }
  stream(stream const&) = delete;
  stream& operator=(stream const&) = delete;
  ~stream() {
    static_cast<void>(cudaStreamSynchronize(handle_));
    static_cast<void>(cudaStreamDestroy(handle_));
  }

  cudaStream_t get() const noexcept { return handle_; }

private:
  cudaStream_t handle_ = nullptr;
};

/// An event that is made when it is first recorded and from then on recorded again and again. Without timing, since
/// timing makes every edge between streams dearer (measured: 3 us on the GPU).
template <unsigned Flags> class basic_event {
public:
  basic_event() = default;
  basic_event(basic_event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  basic_event& operator=(basic_event&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~basic_event() {
    if (handle_) static_cast<void>(cudaEventDestroy(handle_));
  }

  void record(cudaStream_t on) { check(cudaEventRecord(made(), on), "cudaEventRecord"); }
  /// What is issued on `stream` from now on runs behind the last record; there may be none.
  void wait(cudaStream_t on) const {
    if (handle_) check(cudaStreamWaitEvent(on, handle_, 0), "cudaStreamWaitEvent");
  }
  void synchronize() const {
    if (handle_) check(cudaEventSynchronize(handle_), "cudaEventSynchronize");
  }
  // For cleaning up, where nobody could make use of an error.
  void try_record(cudaStream_t on) noexcept {
    if (handle_ && cudaEventRecord(handle_, on) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }
  void try_wait(cudaStream_t on) const noexcept {
    if (handle_ && cudaStreamWaitEvent(on, handle_, 0) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }
  void try_synchronize() const noexcept {
    if (handle_ && cudaEventSynchronize(handle_) != cudaSuccess) static_cast<void>(cudaGetLastError());
  }
  /// Null as long as it was not recorded.
  cudaEvent_t get() const noexcept { return handle_; }
  /// The handle, made if there is none yet.
  cudaEvent_t made() {
    if (!handle_) check(cudaEventCreateWithFlags(&handle_, Flags), "cudaEventCreateWithFlags");
    return handle_;
  }

private:
  cudaEvent_t handle_ = nullptr;
};
using edge = basic_event<cudaEventDisableTiming>;
using time_mark = basic_event<cudaEventDefault>;

inline double microseconds_between(time_mark& from, time_mark& to) {
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, from.made(), to.made()), "cudaEventElapsedTime");
  return 1e3 * static_cast<double>(milliseconds);
}

/// Whether what is issued on a stream goes into a graph. It may be the legacy default stream.
inline bool is_capturing(cudaStream_t on) {
  auto status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(on, &status), "cudaStreamIsCapturing");
  return status != cudaStreamCaptureStatusNone;
}

/// Host memory that copy engines reach without help. It grows, never shrinks, and loses what it held when it grows.
class pinned_buffer {
public:
  pinned_buffer() = default;
  pinned_buffer(pinned_buffer const&) = delete;
  pinned_buffer& operator=(pinned_buffer const&) = delete;
  ~pinned_buffer() { static_cast<void>(cudaFreeHost(data_)); }

  std::size_t size() const noexcept { return size_; }
  std::byte* data() const noexcept { return static_cast<std::byte*>(data_); }

  /// Nothing may still use what was there.
  void grow(std::size_t bytes) {
    if (bytes <= size_) return;
    check(cudaFreeHost(data_), "cudaFreeHost");
    data_ = nullptr;
    size_ = 0;
    check(cudaHostAlloc(&data_, bytes, cudaHostAllocPortable), "cudaHostAlloc");
    size_ = bytes;
  }

private:
  void* data_ = nullptr;
  std::size_t size_ = 0;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
