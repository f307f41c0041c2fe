#pragma once

#include <stretto/adapters/nccl/communicator.hpp>
#include <stretto/adapters/nccl/host_exchange.hpp>
#include <stretto/detail/part_blocks.hpp>
#include <stretto/detail/require_own_rows.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// An all-to-all of device rows by NCCL: a `row_exchange` whose rows lie in device memory. A call only issues, on the current
/// stream (`Current`). The rows for others are one group of sends and receives, of those pairs that have rows: both ends know
/// the same counts. The own rows are copied beside them, since NCCL would take as many multiprocessors again for
/// them. With equal arguments in every replay a call may be captured, after `communicator::connect`.
template <host_exchange Host, stream_source Current> class rows {
public:
  /// `ranks` are those of the communicator, in the same order.
  rows(Host ranks, communicator& over, Current current = {})
      : ranks_(std::move(ranks)), over_(over), current_(std::move(current)) {
    if (ranks_.ranks() != over.ranks() || ranks_.rank() != over.rank())
      throw std::invalid_argument("nccl::rows: rank " + std::to_string(ranks_.rank()) + " of " +
                                  std::to_string(ranks_.ranks()) + " on the host is rank " +
                                  std::to_string(over.rank()) + " of " + std::to_string(over.ranks()) +
                                  " of the communicator; make both from the same ranks");
  }
  rows(rows const&) = delete;
  rows& operator=(rows const&) = delete;

  int rank() const { return over_.rank(); }
  int ranks() const { return over_.ranks(); }
  /// The exchange of host memory among the same ranks.
  Host& host() { return ranks_; }
  static constexpr bool rows_on_device() { return true; }
  static constexpr bool capturable = true;

  /// The counts lie in host memory.
  void exchange_counts(int const* send_rows, int* counts) { ranks_.exchange_counts(send_rows, counts); }

  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    all_to_all_parts(send, send_rows, receive, receive_rows, row_bytes, 1, true);
  }

  static constexpr bool moves_parts() { return true; }
  /// `parts` blocks from every rank to every rank, for rank r `send_rows[r * parts + p]` rows as part p. What is sent lies by
  /// rank and within it by part; what comes lies by part and within it by rank if it is to be `sorted`, and the other way
  /// about if what is sent lies so.
  void all_to_all_parts(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                        std::size_t row_bytes, int parts, bool sorted) {
    cudaStream_t const here = current_.current();
    auto const all = static_cast<std::size_t>(ranks()), of_rank = static_cast<std::size_t>(parts),
               me = static_cast<std::size_t>(rank());
    stretto::detail::require_own_rows(send_rows, receive_rows, rank(), parts, "nccl::rows");
    leaving_.place(send_rows, all, of_rank, !sorted, row_bytes, "nccl::rows");
    coming_.place(receive_rows, all, of_rank, sorted, row_bytes, "nccl::rows");
    auto const* out = static_cast<char const*>(send);
    auto* in = static_cast<char*>(receive);
    std::size_t total = 0;
    for (std::size_t other = 0; other < all; ++other)
      if (other != me) total += leaving_.of_rank(other, of_rank) + coming_.of_rank(other, of_rank);
    std::size_t const own = leaving_.of_rank(me, of_rank);
    if (total > 0) {
      if (own > 0) begun_.record(here);
      over_.group("all_to_all", here, [&](ncclComm_t comm) {
        for (std::size_t block = 0; block < all * of_rank; ++block) {
          auto const other = block / of_rank;
          if (other == me) continue;
          auto const peer = static_cast<int>(other);
          if (leaving_.bytes[block] > 0)
            check(ncclSend(out + leaving_.begins[block], leaving_.bytes[block], ncclUint8, peer, comm, here),
                  "ncclSend");
          if (coming_.bytes[block] > 0)
            check(ncclRecv(in + coming_.begins[block], coming_.bytes[block], ncclUint8, peer, comm, here),
                  "ncclRecv");
        }
      });
    }
    if (own == 0) return;
    // Behind the group, which may throw: then nothing runs beside that nobody waits for.
    if (total > 0) begun_.wait(beside_.get());
    for (std::size_t block = me * of_rank; block < (me + 1) * of_rank; ++block)
      if (leaving_.bytes[block] > 0)
        check(cudaMemcpyAsync(in + coming_.begins[block], out + leaving_.begins[block], leaving_.bytes[block],
                              cudaMemcpyDeviceToDevice, total > 0 ? beside_.get() : here),
              "cudaMemcpyAsync");
    if (total > 0) copied_.order(beside_.get(), here);
  }

private:
  Host ranks_;
  communicator& over_;
  Current current_;
  stretto::detail::part_blocks leaving_, coming_;
  side_stream beside_;
  mark begun_, copied_;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
