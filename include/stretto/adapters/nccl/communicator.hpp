#pragma once

#include <stretto/adapters/nccl/gate.hpp>
#include <stretto/adapters/nccl/largest_kernel.hpp>
#include <stretto/adapters/nccl/stream.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <thread>

namespace stretto {
inline namespace v0 {
namespace nccl {

struct communicator_options {
  /// Multiprocessors that a call may take at most, a power of two; 0 leaves it to NCCL (32 on Hopper). The smallest number that
  /// keeps communication shorter than the compute beside it is the best. A group without the own rows takes half of it
  /// (measured): `ctas_of` tells what it really takes.
  int most_ctas = 0;
  /// Thread blocks of a cluster. 1 lets blocks in wherever a multiprocessor is free; NCCL's own 4 hardly fits beside the
  /// persistent kernels of a matrix product (measured). 0 leaves it to NCCL.
  int cluster_size = 1;
  char const* name = "stretto";

  std::string text() const {
    return std::string("'") + name + "' of at most " + std::to_string(most_ctas) + " blocks in clusters of " +
           std::to_string(cluster_size);
  }
};

/// One communicator of a rank: `session::split` makes it. One thread of the rank issues on all of its communicators. Those
/// that ranks of several GPUs use side by side must be issued on in one order on all ranks, or with
/// NCCL_LAUNCH_ORDER_IMPLICIT=1 in the environment; else their kernels may wait for each other in a circle.
class communicator {
public:
  communicator(gate& entrance, std::function<bool()> const& given_up, ncclComm_t handle)
      : gate_(entrance), given_up_(given_up), handle_(handle) {
    check(ncclCommUserRank(handle, &rank_), "ncclCommUserRank");
    check(ncclCommCount(handle, &ranks_), "ncclCommCount");
  }
  communicator(communicator const&) = delete;
  communicator& operator=(communicator const&) = delete;

  int rank() const noexcept { return rank_; }
  int ranks() const noexcept { return ranks_; }
  ncclComm_t handle() const noexcept { return handle_; }
  gate& entrance() const noexcept { return gate_; }

  /// `calls(handle)` makes calls of NCCL on `stream`, which become one group and are watched under the name `what`. Throws
  /// `error` if NCCL refuses them or was given up.
  template <class Calls> void group(char const* what, cudaStream_t stream, Calls const& calls) {
    group(what, stream, calls, gate_.calls.deadline());
  }
  template <class Calls>
  void group(char const* what, cudaStream_t stream, Calls const& calls, std::chrono::milliseconds allowed) {
    {
      gate::pass const inside(gate_, what, allowed);
      check(ncclGroupStart(), "ncclGroupStart");
      try {
        calls(handle_);
      } catch (...) {
        static_cast<void>(ncclGroupEnd());
        throw;
      }
      check(ncclGroupEnd(), what);
    }
    gate_.calls.note(what, stream, allowed);
  }

  /// Connects every pair of ranks, or only rank 0 to rank 1. Collective. NCCL does it in the first call otherwise, which must not
  /// be captured then, nor issued behind a stream that is blocked: it would hang. Throws at the deadline.
  void connect(bool both_ways = true) {
    constexpr std::size_t bytes = 64;
    auto const all = static_cast<std::size_t>(ranks_);
    side_stream stream;
    stream_memory const memory(stream.get(), 2 * all * bytes);
    auto* const out = memory.data();
    auto const calls = [&](ncclComm_t comm) {
      for (int step = 1; step < ranks_; ++step) {
        int const to = (rank_ + step) % ranks_, from = (rank_ - step + ranks_) % ranks_;
        auto const place = static_cast<std::size_t>(from);
        if (both_ways || rank_ == 0)
          check(
              ncclSend(out + static_cast<std::size_t>(to) * bytes, bytes, ncclUint8, to, comm, stream.get()),
              "ncclSend");
        if (both_ways || rank_ == 1)
          check(ncclRecv(out + (all + place) * bytes, bytes, ncclUint8, from, comm, stream.get()),
                "ncclRecv");
      }
    };
    auto const allowed = gate_.calls.joining();
    group("the first call", stream.get(), calls, allowed);
    wait_for(stream.get(), "the first call", allowed);
  }

  /// Returns when the stream is idle; throws when the deadline passes, NCCL reports an error or the ranks have given up.
  void wait_for(cudaStream_t stream, char const* what) const {
    wait_for(stream, what, gate_.calls.deadline());
  }
  void wait_for(cudaStream_t stream, char const* what, std::chrono::milliseconds allowed) const {
    auto const end = clock::now() + allowed;
    for (;;) {
      auto const state = cudaStreamQuery(stream);
      if (state == cudaSuccess) return;
      if (state != cudaErrorNotReady) check(state, what);
      static_cast<void>(cudaGetLastError());
      gate_.require_open();
      if (given_up_ && given_up_())
        throw error(std::string(what) + ": the ranks have given up", ncclRemoteError);
      {
        // So that the watchdog does not free the communicator meanwhile.
        gate::pass const inside(gate_, what, allowed);
        ncclResult_t found = ncclSuccess;
        check(ncclCommGetAsyncError(handle_, &found), "ncclCommGetAsyncError");
        check(found, what);
      }
      if (clock::now() > end)
        throw error(std::string(what) + " did not end within " + std::to_string(allowed.count() / 1000) +
                        " s: a rank is silent",
                    ncclRemoteError);
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }

  /// The multiprocessors that a call takes: thread blocks of its largest kernel, from a capture that does not run.
  /// `issue(stream)` makes the call on that stream, which is `on` or else one of its own. Collective, after `connect`. What is
  /// left of the GPU is what matrix products beside it should be told.
  template <class Issue> int ctas_of(Issue const& issue, cudaStream_t on = nullptr) const {
    std::optional<side_stream> own;
    if (on == nullptr) on = own.emplace().get();
    return captured_graph(on, issue).largest_kernel();
  }

private:
  gate& gate_;
  std::function<bool()> const& given_up_;
  ncclComm_t handle_;
  int rank_ = 0, ranks_ = 1;
};

/// What a matrix product beside calls of that many thread blocks should take at most: `cublasSetSmCountTarget`.
inline int sm_target(int ctas) {
  int device = 0, all = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&all, cudaDevAttrMultiProcessorCount, device), "cudaDeviceGetAttribute");
  return (std::max)(1, all - ctas);
}

} // namespace nccl
} // namespace v0
} // namespace stretto
