#pragma once

#include <ATen/Context.h>

#include <cstdlib>

namespace stretto {
inline namespace v0 {
namespace torch_cuda {

/// The same bits from the same inputs on every run: torch's operations that sum in an order of chance take their slower
/// twin or throw, and attention leaves out cuDNN. Schedules are bit-identical on a GPU only with this. Before the first
/// matrix product of the process, since cuBLAS must have workspaces of fixed size; a size that the environment names
/// stays.
inline void make_repeatable() {
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  auto& context = at::globalContext();
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  context.setDeterministicCuDNN(true);
  context.setSDPUseCuDNN(false);
}

/// More than the usual eight hardware queues, so that streams of several ranks do not wait for each other by chance. Before
/// the first CUDA call of the process; a number that the environment names stays.
inline void use_many_queues() { ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0); }

} // namespace torch_cuda
} // namespace v0
} // namespace stretto
