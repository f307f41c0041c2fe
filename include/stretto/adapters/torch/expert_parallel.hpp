#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/torch/exchange_rows.hpp>
#include <stretto/detail/op_place.hpp>

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

/// The all-to-all of expert parallelism over any exchange of plain rows: an `expert_communicator` whose counts are
/// exchanged before the rows. Experts lie on the ranks in order, `local_experts` on each. What arrives lies by expert and within
/// it by source rank. Tensors are in host memory, unless the exchange moves rows of a device.
template <row_exchange Exchange> class expert_parallel {
public:
  using tensor = at::Tensor;

  /// Rows for each expert of the group, in the order of the experts.
  struct routing {
    std::vector<int> rows;
  };

  /// How many rows went where and came from where; belongs to one microbatch of one layer.
  class handle {
  public:
    handle() = default;
    handle(handle&&) noexcept = default;
    handle& operator=(handle&&) noexcept = default;

    /// How many rows arrived for each local expert.
    std::vector<std::int64_t> const& rows() const { return rows_; }

  private:
    friend class expert_parallel;
    std::vector<int> sent_; ///< by rank and, within it, by expert of that rank
    std::vector<int> arrived_; ///< by source rank and, within it, by local expert
    std::vector<std::int64_t> rows_;
    stretto::detail::made_at made_at_;
  };

  static constexpr counts_mode counts = counts_mode::host;
  static constexpr int in_flight = 0;
  static constexpr bool capturable = false;

  expert_parallel(Exchange& over, int local_experts) : exchange_(over), local_experts_(local_experts) {
    if (local_experts < 1) throw std::invalid_argument("expert_parallel: a rank needs at least one expert");
  }

  int rank() const { return exchange_.rank(); }
  int ranks() const { return exchange_.ranks(); }
  int local_experts() const { return local_experts_; }

  /// `rows` [n, ...] lie in the order of the experts, `where.rows[e]` of them for expert e.
  at::Tensor dispatch(at::Tensor const& rows, routing const& where, handle& made) {
    check(rows, where);
    made.made_at_.note();
    auto const ranks = static_cast<std::size_t>(exchange_.ranks());
    auto const experts = static_cast<std::size_t>(local_experts_);
    made.arrived_.resize(ranks * experts);
    std::vector<int> const one(ranks, 1);
    host().all_to_all(where.rows.data(), one.data(), made.arrived_.data(), one.data(), experts * sizeof(int));
    made.sent_ = where.rows;
    made.rows_.assign(experts, 0);
    for (std::size_t i = 0; i < made.arrived_.size(); ++i) made.rows_[i % experts] += made.arrived_[i];
    return exchange(rows, made, true);
  }
  at::Tensor combine(at::Tensor const& rows, handle& made) { return exchange(rows, made, false); }
  at::Tensor dispatch_backward(at::Tensor const& rows, handle& made) { return combine(rows, made); }
  at::Tensor combine_backward(at::Tensor const& rows, handle& made) { return exchange(rows, made, true); }

private:
  at::Tensor exchange(at::Tensor const& rows, handle const& by, bool sorted) {
    by.made_at_.require_here("expert_parallel: a handle");
    return exchange_parts(exchange_, rows, sorted ? by.sent_ : by.arrived_, sorted ? by.arrived_ : by.sent_,
                          sorted, "expert_parallel");
  }

  void check(at::Tensor const& rows, routing const& where) const {
    auto const total = std::accumulate(where.rows.begin(), where.rows.end(), std::int64_t{0});
    auto const experts = static_cast<std::size_t>(exchange_.ranks() * local_experts_);
    if (where.rows.size() == experts && total == rows.size(0)) return;
    throw std::invalid_argument("expert_parallel: a routing of " + std::to_string(total) + " rows to " +
                                std::to_string(where.rows.size()) + " experts, but there are " +
                                std::to_string(rows.size(0)) + " rows and " + std::to_string(experts) +
                                " experts");
  }

  auto& host() {
    if constexpr (device_row_exchange<Exchange>)
      return exchange_.host();
    else
      return exchange_;
  }

  Exchange& exchange_;
  int local_experts_;
};

} // namespace torch
} // namespace v0
} // namespace stretto
