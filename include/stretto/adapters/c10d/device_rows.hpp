#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/c10d/waiting.hpp>
#include <stretto/detail/require_own_rows.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace c10d {

/// An all-to-all of device rows over a c10d group that works on the device (ProcessGroupNCCL): a `row_exchange` for trainers
/// that have such groups already. A call only issues: it reads and writes behind what torch's current stream has
/// done, and what that stream does next runs behind the call. Deadlines and errors are those of the group, whose
/// watchdog ends the process; `nccl::rows` tells the failure board instead.
template <row_exchange Host> class device_rows {
public:
  using group = ::c10::intrusive_ptr<::c10d::Backend>;

  /// `host` exchanges host memory among the same ranks in the same order, such as `communicator` over a group of Gloo.
  device_rows(Host host, group of) : host_(std::move(host)), group_(std::move(of)) {
    if (host_.ranks() != group_->getSize() || host_.rank() != group_->getRank())
      throw std::invalid_argument(
          "c10d::device_rows: rank " + std::to_string(host_.rank()) + " of " + std::to_string(host_.ranks()) +
          " on the host is rank " + std::to_string(group_->getRank()) + " of " +
          std::to_string(group_->getSize()) + " of the group; make both from the same ranks");
  }

  int rank() const { return group_->getRank(); }
  int ranks() const { return group_->getSize(); }
  Host& host() { return host_; }
  static constexpr bool rows_on_device() { return true; }

  /// The counts lie in host memory.
  void exchange_counts(int const* send_rows, int* counts) { host_.exchange_counts(send_rows, counts); }

  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    stretto::detail::require_own_rows(send_rows, receive_rows, rank(), 1, "all_to_all");
    auto to = sizes_of(send_rows, row_bytes), from = sizes_of(receive_rows, row_bytes);
    auto in = bytes_at(send, to), out = bytes_at(receive, from);
    ::c10::intrusive_ptr<::c10d::Work> work;
    try {
      work = group_->alltoall_base(out, in, from, to);
      // The current stream waits, the host does not.
      work->wait();
    } catch (std::exception const& error) {
      throw process_error(std::string("all_to_all: ") + waiting::first_line(error.what()));
    }
  }

private:
  std::vector<std::int64_t> sizes_of(int const* rows, std::size_t row_bytes) const {
    std::vector<std::int64_t> all;
    for (int each = 0; each < ranks(); ++each)
      all.push_back(rows[each] * static_cast<std::int64_t>(row_bytes));
    return all;
  }
  static at::Tensor bytes_at(void const* data, std::vector<std::int64_t> const& sizes) {
    auto const total = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    auto const options = at::TensorOptions(at::kCUDA).dtype(at::kByte);
    if (total == 0) return at::empty({0}, options);
    return at::from_blob(const_cast<void*>(data), {total}, options);
  }

  Host host_;
  group group_;
};

} // namespace c10d
} // namespace v0
} // namespace stretto
