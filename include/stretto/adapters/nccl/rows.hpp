#pragma once

#include <stretto/adapters/nccl/communicator.hpp>
#include <stretto/adapters/nccl/host_exchange.hpp>

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

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
    cudaStream_t const here = current_.current();
    auto const* out = static_cast<char const*>(send);
    auto* in = static_cast<char*>(receive);
    auto const me = static_cast<std::size_t>(rank());
    auto const bytes_of = [row_bytes](int count) {
      if (count < 0) throw std::invalid_argument("nccl::rows: a negative number of rows");
      return static_cast<std::size_t>(count) * row_bytes;
    };
    std::size_t total = 0;
    for (int other = 0; other < ranks(); ++other)
      if (other != rank()) total += bytes_of(send_rows[other]) + bytes_of(receive_rows[other]);
    std::size_t const own = bytes_of(send_rows[me]);
    if (total > 0) {
      if (own > 0) begun_.record(here);
      over_.group("all_to_all", here, [&](ncclComm_t comm) {
        std::size_t from = 0, to = 0;
        for (int other = 0; other < ranks(); ++other) {
          std::size_t const leaving = bytes_of(send_rows[other]), coming = bytes_of(receive_rows[other]);
          if (other != rank() && leaving > 0)
            check(ncclSend(out + from, leaving, ncclUint8, other, comm, here), "ncclSend");
          if (other != rank() && coming > 0)
            check(ncclRecv(in + to, coming, ncclUint8, other, comm, here), "ncclRecv");
          from += leaving;
          to += coming;
        }
      });
    }
    if (own == 0) return;
    // Behind the group, which may throw: then nothing runs beside that nobody waits for.
    std::size_t from = 0, to = 0;
    for (std::size_t other = 0; other < me; ++other) {
      from += bytes_of(send_rows[other]);
      to += bytes_of(receive_rows[other]);
    }
    if (total > 0) begun_.wait(beside_.get());
    check(
        cudaMemcpyAsync(in + to, out + from, own, cudaMemcpyDeviceToDevice, total > 0 ? beside_.get() : here),
        "cudaMemcpyAsync");
    if (total > 0) copied_.order(beside_.get(), here);
  }

private:
  Host ranks_;
  communicator& over_;
  Current current_;
  side_stream beside_;
  mark begun_, copied_;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
