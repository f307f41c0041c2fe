#pragma once

#include <stretto/detail/cxx20.hpp>

#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// A call of the CUDA runtime that failed. Work on the GPU fails later than its call: the error may be that of anything
/// that was issued before.
class error : public std::runtime_error {
public:
  error(cudaError_t what, char const* call)
      : std::runtime_error(std::string(call) + ": " + cudaGetErrorString(what) + " (" +
                           cudaGetErrorName(what) + ")"),
        code(what) {}

  cudaError_t code;
};

/// Throws `error` unless the call went well.
inline void check(cudaError_t result, char const* call) {
  if (result == cudaSuccess) return;
  // Else an error that does not stay would be found again by a later call.
  static_cast<void>(cudaGetLastError());
  throw error(result, call);
}

} // namespace cuda
} // namespace v0
} // namespace stretto
