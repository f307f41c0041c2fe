#pragma once

#include <stretto/adapters/cublas/error.hpp>
#include <stretto/adapters/cublas/product.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {
namespace cublas {

/// A cuBLAS handle on one stream of the current device, with a workspace that nobody else uses. Work of one handle runs one
/// behind the other, so a workspace of fixed size gives the same bits every time; two streams need two handles. One thread at
/// a time may use it. Not to be made while its stream is captured: it takes memory.
class handle {
public:
  /// What NVIDIA advises for Hopper. cuBLAS chooses kernels by it: equal sizes, equal bits.
  static constexpr std::size_t usual_workspace = std::size_t{32} << 20;

  explicit handle(cudaStream_t on, std::size_t workspace_bytes = usual_workspace)
      : bytes_(workspace_bytes), kernels_(workspace_bytes) {
    if (is_captured(on))
      throw std::logic_error(
          "cublas::handle: made while its stream is captured; make it before, and launch each product "
          "once (cublas::warm)");
    detail::check(cublasCreate(&handle_), "cublasCreate");
    try {
      if (bytes_ > 0) {
        detail::check(cudaMalloc(&workspace_, bytes_),
                      "a cuBLAS workspace of " + std::to_string(bytes_) + " bytes");
        // initcheck does not see all that kernels write there, and else reports what they read back.
        detail::check(cudaMemsetAsync(workspace_, 0, bytes_, on), "cudaMemsetAsync");
      }
      // Sums of bf16 products stay float until the end.
      detail::check(cublasSetMathMode(
                        handle_, static_cast<cublasMath_t>(CUBLAS_DEFAULT_MATH |
                                                           CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION)),
                    "cublasSetMathMode");
      go_to(on);
    } catch (...) {
      give_back();
      throw;
    }
  }
  handle(handle const&) = delete;
  handle& operator=(handle const&) = delete;
  ~handle() { give_back(); }

  cublasHandle_t get() const noexcept { return handle_; }
  cudaStream_t stream() const noexcept { return stream_; }
  void* workspace() const noexcept { return workspace_; }
  std::size_t workspace_bytes() const noexcept { return bytes_; }

  /// Goes on on another stream, behind what it has issued on the one before, which must still be there. Not in a capture.
  void move_to(cudaStream_t on) {
    if (on == stream_) return;
    cudaEvent_t done = nullptr;
    detail::check(cudaEventCreateWithFlags(&done, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    auto problem = cudaEventRecord(done, stream_);
    if (problem == cudaSuccess) problem = cudaStreamWaitEvent(on, done, 0);
    static_cast<void>(cudaEventDestroy(done));
    detail::check(problem, "a cuBLAS handle moves to another stream");
    go_to(on);
  }

  /// Products are made for so many multiprocessors, to leave the others to kernels that run beside them; 0: all of them. Other
  /// numbers may choose other kernels, and so give other bits.
  void use_multiprocessors(int count) {
    detail::check(cublasSetSmCountTarget(handle_, count),
                  "cuBLAS for " + std::to_string(count) + " multiprocessors");
    multiprocessors_ = count;
  }

  int multiprocessors() const noexcept { return multiprocessors_; }

  detail::kernel_choices& kernels() noexcept { return kernels_; }

private:
  static bool is_captured(cudaStream_t on) {
    auto status = cudaStreamCaptureStatusNone;
    detail::check(cudaStreamIsCapturing(on, &status), "cudaStreamIsCapturing");
    return status != cudaStreamCaptureStatusNone;
  }

  void go_to(cudaStream_t on) {
    detail::check(cublasSetStream(handle_, on), "cublasSetStream");
    stream_ = on;
    // cublasSetStream goes back to a workspace of cuBLAS's own.
    detail::check(cublasSetWorkspace(handle_, workspace_, bytes_), "cublasSetWorkspace");
  }

  void give_back() noexcept {
    if (!handle_) return;
    // Its stream may be gone already.
    static_cast<void>(cublasSetStream(handle_, nullptr));
    static_cast<void>(cublasDestroy(handle_));
    static_cast<void>(cudaFree(workspace_));
  }

  cublasHandle_t handle_ = nullptr;
  std::size_t bytes_;
  void* workspace_ = nullptr;
  cudaStream_t stream_ = nullptr;
  int multiprocessors_ = 0;
  detail::kernel_choices kernels_;
};

} // namespace cublas
} // namespace v0
} // namespace stretto
