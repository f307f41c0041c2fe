#pragma once

#include <stretto/detail/cxx20.hpp>

#include <ATen/Context.h>

#include <cstdlib>

namespace stretto {
inline namespace v0 {
namespace torch_cuda {

namespace detail {

/// Of older torch, which refuses products of repeatable bits unless CUBLAS_WORKSPACE_CONFIG names a size
/// (github.com/pytorch/pytorch/pull/161749).
template <class Context>
concept asks_for_workspace_size = requires(Context const& context) {
  context.alertCuBLASConfigNotDeterministic();
};

} // namespace detail

/// The same bits from the same inputs on every run: torch's operations that sum in an order of chance take their slower
/// twin or throw, and attention leaves out cuDNN. Schedules are bit-identical on a GPU only with this. Before the first
/// matrix product of the process.
///
/// Torch gives every handle of cuBLAS a workspace of fixed size by itself. CUBLAS_WORKSPACE_CONFIG is set for a torch that
/// insists on it only, since torch reads the variable by a regular expression at every product: tens of microseconds.
inline void make_repeatable() {
  if constexpr (detail::asks_for_workspace_size<at::Context>)
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
