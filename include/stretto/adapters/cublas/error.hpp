#pragma once

#include <stretto/detail/cxx20.hpp>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {
namespace cublas {

/// A call of cuBLAS that failed: the status by name, what was asked for, and what to do.
class error : public std::runtime_error {
public:
  error(cublasStatus_t what, std::string const& call)
      : std::runtime_error(call + ": " + cublasGetStatusName(what) + "; " + remedy(what)), code(what) {}

  cublasStatus_t code;

private:
  static char const* remedy(cublasStatus_t what) {
    switch (what) {
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "cuBLAS found no GPU that it can use, or one without memory for a handle";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "GPU memory is used up: give some back, or use fewer streams, each of which has a workspace";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "a size or a pointer is none that cuBLAS takes";
    case CUBLAS_STATUS_ARCH_MISMATCH:
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "this GPU or this cuBLAS does not multiply these types: use float";
    default:
      return "the GPU failed, here or in what was issued before: CUDA_LAUNCH_BLOCKING=1 in the environment "
             "finds where";
    }
  }
};

namespace detail {

inline void check(cublasStatus_t result, std::string const& call) {
  if (result != CUBLAS_STATUS_SUCCESS) throw error(result, call);
}

inline void check(cudaError_t result, std::string const& call) {
  if (result == cudaSuccess) return;
  // Else an error that does not stay would be found again by a later call.
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(call + ": " + cudaGetErrorString(result) + " (" + cudaGetErrorName(result) + ")");
}

} // namespace detail

} // namespace cublas
} // namespace v0
} // namespace stretto
