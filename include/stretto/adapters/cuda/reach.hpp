#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/error.hpp>
#include <stretto/adapters/cuda/share.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// Ranks of processes that have no way to each other's memory. The same on every rank.
struct no_peer_access : std::runtime_error {
  using std::runtime_error::runtime_error;
};

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

/// Collective: where the current GPU of every rank is. Processes may number GPUs differently.
template <row_exchange Ranks> std::vector<std::array<char, 32>> buses_of(Ranks& ranks) {
  int here = 0;
  check(cudaGetDevice(&here), "cudaGetDevice");
  std::array<char, 32> bus{};
  check(cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), here), "cudaDeviceGetPCIBusId");
  return of_all(ranks, bus);
}
/// Where the GPUs of ranks are, the same on every rank.
struct reached_gpus {
  bool are_shared = false; ///< any two ranks have one GPU
  std::optional<std::string> unreached{}; ///< whose GPU cannot reach whose
};

/// Collective over `ranks`, threads or processes of one host: lets the current GPU of each reach the memory of the others'
/// GPUs.
template <row_exchange Ranks> reached_gpus reach_the_gpus_of(Ranks& ranks) {
  int here = 0;
  check(cudaGetDevice(&here), "cudaGetDevice");
  auto const buses = buses_of(ranks);
  auto const size = buses.size();
  auto sorted = buses;
  std::sort(sorted.begin(), sorted.end());
  reached_gpus all{.are_shared = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()};
  int unreached = -1;
  for (std::size_t rank = 0; rank < size; ++rank) {
    int there = 0;
    // What this process does not see its driver may still reach.
    if (cudaDeviceGetByPCIBusId(&there, buses[rank].data()) != cudaSuccess)
      static_cast<void>(cudaGetLastError());
    else if (!reach_gpu(here, there))
      unreached = static_cast<int>(rank);
  }
  auto const found = of_all(ranks, unreached);
  for (std::size_t rank = 0; rank < size && !all.unreached; ++rank)
    if (found[rank] >= 0)
      all.unreached = "the GPU of rank " + std::to_string(rank) + " (" + buses[rank].data() +
                      ") cannot reach the memory of that of rank " + std::to_string(found[rank]) + " (" +
                      buses[static_cast<std::size_t>(found[rank])].data() + ")";
  return all;
}

/// Collective, for what has no other way. Returns whether any two ranks have one GPU.
template <row_exchange Ranks> bool require_reach(Ranks& ranks, std::string const& whose) {
  auto const all = reach_the_gpus_of(ranks);
  if (all.unreached) throw no_peer_access(whose + ": " + *all.unreached);
  return all.are_shared;
}

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
