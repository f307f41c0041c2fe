#pragma once

#include <stretto/adapters/cuda/error.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// A call of the driver that the runtime has loaded, so that no program needs to link it.
template <class Function> Function driver_call(char const* name, [[maybe_unused]] unsigned version) {
  void* call = nullptr;
  cudaDriverEntryPointQueryResult status{};
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion(name, &call, version, cudaEnableDefault, &status),
        "cudaGetDriverEntryPointByVersion");
#else
  check(cudaGetDriverEntryPoint(name, &call, cudaEnableDefault, &status), "cudaGetDriverEntryPoint");
#endif
  if (status != cudaDriverEntryPointSuccess || !call)
    throw std::runtime_error(std::string("the CUDA driver has no ") + name +
                             "; it is older than the toolkit");
  return reinterpret_cast<Function>(call);
}

/// The numbers of both kinds of errors agree.
inline void check_driver(CUresult result, char const* call) { check(static_cast<cudaError_t>(result), call); }

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
