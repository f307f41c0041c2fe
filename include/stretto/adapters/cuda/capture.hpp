#pragma once

#include <stretto/adapters/cuda/error.hpp>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// The number of the capture that a stream takes part in, the same for all of its streams; 0: none.
inline unsigned long long capture_of(cudaStream_t stream) {
  auto status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;
  check(cudaStreamGetCaptureInfo(stream, &status, &number), "cudaStreamGetCaptureInfo");
  return status == cudaStreamCaptureStatusNone ? 0 : number;
}

/// As long as it lives, this thread may allocate although streams are captured.
class allocating_in_capture {
public:
  allocating_in_capture() {
    check(cudaThreadExchangeStreamCaptureMode(&mode_), "cudaThreadExchangeStreamCaptureMode");
  }
  ~allocating_in_capture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  allocating_in_capture(allocating_in_capture const&) = delete;
  allocating_in_capture& operator=(allocating_in_capture const&) = delete;

private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
