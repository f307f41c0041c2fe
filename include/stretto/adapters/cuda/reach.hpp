#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/error.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// Lets the current GPU `here` reach the memory of GPU `there`. False: it cannot.
inline bool reach_gpu(int here, int there) {
  int can = here == there;
  if (can) return true;
  check(cudaDeviceCanAccessPeer(&can, here, there), "cudaDeviceCanAccessPeer");
  if (!can) return false;
  auto const result = cudaDeviceEnablePeerAccess(there, 0);
  if (result == cudaErrorPeerAccessAlreadyEnabled)
    static_cast<void>(cudaGetLastError());
  else
    check(result, "cudaDeviceEnablePeerAccess");
  return true;
}

/// Collective over `ranks`, threads of one process: lets the current GPU of each reach the memory of the others' GPUs.
/// Returns, the same on every rank, which GPU cannot reach which.
template <row_exchange Ranks> std::optional<std::string> reach_the_gpus_of(Ranks& ranks) {
  auto const size = static_cast<std::size_t>(ranks.ranks());
  std::vector<int> const ones(size, 1);
  auto const tell_all = [&](int mine) {
    std::vector<int> const out(size, mine);
    std::vector<int> all(size);
    ranks.all_to_all(out.data(), ones.data(), all.data(), ones.data(), sizeof(int));
    return all;
  };
  int here = 0;
  check(cudaGetDevice(&here), "cudaGetDevice");
  auto const gpus = tell_all(here);
  int unreached = -1;
  for (int const there : gpus)
    if (!reach_gpu(here, there)) unreached = there;
  auto const found = tell_all(unreached);
  for (std::size_t rank = 0; rank < size; ++rank)
    if (found[rank] >= 0)
      return "GPU " + std::to_string(gpus[rank]) + " cannot reach the memory of GPU " +
             std::to_string(found[rank]);
  return std::nullopt;
}

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
