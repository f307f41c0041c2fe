#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/c10d/waiting.hpp>
#include <stretto/detail/require_own_rows.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace c10d {

/// The collective calls of ranks that are processes, over a c10d group with host memory. Models `row_exchange`; the same calls
/// as `host::communicator`. One thread at a time may be in a call. Throws `process_error` when a call fails or the
/// deadline of the group passes.
class communicator {
public:
  using group = ::c10::intrusive_ptr<::c10d::Backend>;

  /// A communicator of one rank needs no group.
  communicator() = default;
  communicator(group of, waiting& in_flight) : group_(std::move(of)), waiting_(&in_flight) {}

  int rank() const { return group_ ? group_->getRank() : 0; }
  int ranks() const { return group_ ? group_->getSize() : 1; }

  void barrier() {
    std::uint8_t const mine = 0;
    std::vector<std::uint8_t> all(static_cast<std::size_t>(ranks()));
    gather(&mine, 1, all.data(), "barrier");
  }

  /// `counts[s]` becomes what rank s has in `send_rows[rank()]`.
  void exchange_counts(int const* send_rows, int* counts) {
    std::vector<int> const one(static_cast<std::size_t>(ranks()), 1);
    exchange(send_rows, one.data(), counts, one.data(), sizeof(int), "exchange_counts");
  }

  /// Rows of `row_bytes` bytes: those for rank d lie at `send` behind those for the ranks before d.
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    exchange(send, send_rows, receive, receive_rows, row_bytes, "all_to_all");
  }

  /// `count` elements of every rank, in rank order, at `receive`.
  template <class Element> void all_gather(Element const* send, std::size_t count, Element* receive) {
    static_assert(std::is_trivially_copyable_v<Element>);
    all_gather_bytes(send, count * sizeof(Element), receive);
  }
  void all_gather_bytes(void const* send, std::size_t bytes, void* receive) {
    gather(send, bytes, receive, "all_gather");
  }

  /// Each element becomes its sum over the ranks, added in rank order: the same bits on every rank, whatever the backend.
  void all_reduce(float* data, std::size_t count) { sum(data, count); }
  void all_reduce(double* data, std::size_t count) { sum(data, count); }

private:
  static at::Tensor bytes_at(void const* data, std::size_t bytes) {
    static std::uint8_t nothing[1];
    return at::from_blob(bytes == 0 ? nothing : const_cast<void*>(data), {static_cast<std::int64_t>(bytes)},
                         at::kByte);
  }

  void gather(void const* send, std::size_t bytes, void* receive, char const* what) {
    if (bytes == 0) return;
    auto* to = static_cast<std::uint8_t*>(receive);
    if (!group_) {
      std::memcpy(to, send, bytes);
      return;
    }
    std::vector<at::Tensor> in{bytes_at(send, bytes)};
    std::vector<std::vector<at::Tensor>> out(1);
    for (int from = 0; from < ranks(); ++from)
      out[0].push_back(bytes_at(to + static_cast<std::size_t>(from) * bytes, bytes));
    finish([&] { return group_->allgather(out, in); }, what);
  }

  void exchange(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                std::size_t row_bytes, char const* what) {
    stretto::detail::require_own_rows(send_rows, receive_rows, rank(), 1, what);
    auto const sizes = [&](int const* rows) {
      std::vector<std::int64_t> all;
      for (int each = 0; each < ranks(); ++each)
        all.push_back(rows[each] * static_cast<std::int64_t>(row_bytes));
      return all;
    };
    auto from = sizes(receive_rows), to = sizes(send_rows);
    auto const total = [](std::vector<std::int64_t> const& of) {
      return static_cast<std::size_t>(std::accumulate(of.begin(), of.end(), std::int64_t{0}));
    };
    if (!group_) {
      if (total(to) != 0) std::memcpy(receive, send, total(to));
      return;
    }
    auto out = bytes_at(receive, total(from)), in = bytes_at(send, total(to));
    finish([&] { return group_->alltoall_base(out, in, from, to); }, what);
  }

  template <class Real> void sum(Real* data, std::size_t count) {
    // In pieces, so that the copies of all ranks need little memory.
    constexpr std::size_t piece = std::size_t{1} << 18;
    std::vector<Real> all((std::min)(count, piece) * static_cast<std::size_t>(ranks()));
    for (std::size_t begin = 0; begin < count; begin += piece) {
      std::size_t const length = (std::min)(piece, count - begin);
      gather(data + begin, length * sizeof(Real), all.data(), "all_reduce");
      for (std::size_t i = 0; i < length; ++i) {
        Real total = all[i];
        for (int from = 1; from < ranks(); ++from) total += all[static_cast<std::size_t>(from) * length + i];
        data[begin + i] = total;
      }
    }
  }

  template <class Call> void finish(Call const& call, char const* what) {
    waiting_->require_going_on(what);
    ::c10::intrusive_ptr<::c10d::Work> work;
    try {
      work = call();
    } catch (std::exception const& error) {
      throw process_error(std::string(what) + ": " + waiting::first_line(error.what()));
    }
    (*waiting_)(work, what);
  }

  group group_;
  waiting* waiting_ = nullptr;
};

static_assert(row_exchange<communicator>);

} // namespace c10d
} // namespace v0
} // namespace stretto
