#pragma once

#include <stretto/detail/cxx20.hpp>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// A call of NCCL that failed, or ranks that NCCL cannot serve as they are.
class error : public std::runtime_error {
public:
  explicit error(std::string const& what, ncclResult_t result = ncclInvalidUsage)
      : std::runtime_error(what), code(result) {}

  ncclResult_t code;
};

/// What NCCL says about a result: one line, without advice that needs its log.
inline std::string reason_of(ncclResult_t result) {
  std::string const text = ncclGetErrorString(result);
  return text.substr(0, text.find(" (run with"));
}

/// Throws `error` unless the call went well or goes on by itself.
inline void check(ncclResult_t result, char const* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::string const more = ncclGetLastError(nullptr);
  throw error(std::string(call) + ": " + reason_of(result) +
                  (more.empty() ? "" : " (" + more.substr(0, more.find('\n')) + ")"),
              result);
}
inline void check(cudaError_t result, char const* call) {
  if (result == cudaSuccess) return;
  // Else an error that does not stay would be found again by a later call.
  static_cast<void>(cudaGetLastError());
  throw error(std::string(call) + ": " + cudaGetErrorString(result), ncclUnhandledCudaError);
}

} // namespace nccl
} // namespace v0
} // namespace stretto
