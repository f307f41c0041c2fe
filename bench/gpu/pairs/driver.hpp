#pragma once

#include <stretto/adapters/cuda/error.hpp>

#include <cuda.h>
#include <cudaTypedefs.h>

#include <stdexcept>
#include <string>

/// What only the driver offers, found when the program runs: it links the runtime alone and starts on machines without a GPU.
namespace layer_pairs {

template <class Function> Function driver_function(char const* name, unsigned version) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer{};
  stretto::cuda::check(cudaGetDriverEntryPointByVersion(name, &found, version, cudaEnableDefault, &answer),
                       name);
  if (answer != cudaDriverEntryPointSuccess || !found)
    throw std::runtime_error(std::string("this driver has no ") + name);
  return reinterpret_cast<Function>(found);
}

inline void check_driver(CUresult result, char const* call) {
  if (result != CUDA_SUCCESS)
    throw std::runtime_error(std::string(call) + " failed with CUresult " +
                             std::to_string(static_cast<int>(result)));
}

} // namespace layer_pairs
