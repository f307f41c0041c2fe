#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/torch/exchange_rows.hpp>
#include <stretto/detail/op_place.hpp>

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

/// The all-to-all of expert parallelism where every expert has `capacity` rows from every rank, filled or not: an
/// `expert_communicator` that exchanges no counts, so that nothing waits for the host and a step may be captured where the
/// exchange may. Experts lie on the ranks in order, `local_experts` on each. `route_to_slots` and `rows_to_slots` make what
/// is dispatched; what arrives lies by expert and within it by source rank.
template <row_exchange Exchange> class fixed_parallel {
public:
  using tensor = at::Tensor;

  /// Nothing needs to be told.
  struct routing {};

  /// Belongs to one microbatch of one layer.
  class handle {
  public:
    handle() = default;
    handle(handle&&) noexcept = default;
    handle& operator=(handle&&) noexcept = default;

  private:
    friend class fixed_parallel;
    stretto::detail::made_at made_at_;
  };

  static constexpr counts_mode counts = counts_mode::static_capacity;
  static constexpr int in_flight = 0;
  static constexpr bool capturable = is_capturable<Exchange>();

  fixed_parallel(Exchange& exchange, int local_experts, int capacity)
      : exchange_(exchange), local_experts_(local_experts), capacity_(capacity) {
    if (local_experts < 1 || capacity < 1)
      throw std::invalid_argument("fixed_parallel: a rank needs at least one expert, and an expert one slot");
    each_.assign(static_cast<std::size_t>(exchange.ranks() * local_experts), capacity);
    rows_.assign(static_cast<std::size_t>(local_experts), std::int64_t{exchange.ranks()} * capacity);
  }

  int rank() const { return exchange_.rank(); }
  int ranks() const { return exchange_.ranks(); }
  int local_experts() const { return local_experts_; }
  int capacity() const { return capacity_; }
  /// How many rows arrive for each local expert in every dispatch.
  std::vector<std::int64_t> const& rows() const { return rows_; }

  /// `rows` [ranks * local_experts * capacity, ...] lie in the order of the experts.
  at::Tensor dispatch(at::Tensor const& rows, routing const&, handle& made) {
    made.made_at_.note();
    return exchange(rows, made, true);
  }
  at::Tensor combine(at::Tensor const& rows, handle& made) { return exchange(rows, made, false); }
  at::Tensor dispatch_backward(at::Tensor const& rows, handle& made) { return combine(rows, made); }
  at::Tensor combine_backward(at::Tensor const& rows, handle& made) { return exchange(rows, made, true); }

private:
  at::Tensor exchange(at::Tensor const& rows, handle const& by, bool sorted) {
    by.made_at_.require_here("fixed_parallel: a handle");
    return exchange_parts(exchange_, rows, each_, each_, sorted, "fixed_parallel");
  }

  Exchange& exchange_;
  int local_experts_, capacity_;
  std::vector<int> each_; ///< for every expert
  std::vector<std::int64_t> rows_;
};

} // namespace torch
} // namespace v0
} // namespace stretto
