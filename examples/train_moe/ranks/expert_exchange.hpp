#pragma once

#include "rank_rows.hpp"

#include <stretto/adapters/torch/expert_parallel.hpp>
#include <stretto/adapters/torch/fixed_parallel.hpp>

#include <ATen/ATen.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace train_moe {

/// Rows to experts and back with exact counts, or in slots of fixed number: one type, so that there is one model for both.
class expert_exchange {
  using counted = stretto::torch::expert_parallel<rank_rows>;
  using fixed = stretto::torch::fixed_parallel<rank_rows>;

public:
  using tensor = at::Tensor;
  /// Rows for each expert of the group, or none at all: then what is dispatched lies in slots.
  using routing = counted::routing;

  class handle {
  public:
    /// How many rows arrived for each local expert, in slots or not.
    std::vector<std::int64_t> const& rows() const { return in_slots_ ? slots_ : counted_.rows(); }

  private:
    friend class expert_exchange;
    bool in_slots_ = false;
    std::vector<std::int64_t> slots_;
    counted::handle counted_;
    fixed::handle fixed_;
  };

  /// At most: with slots there are none to exchange.
  static constexpr stretto::counts_mode counts = stretto::counts_mode::host;
  static constexpr int in_flight = 0;
  static constexpr bool capturable = false;

  /// `capacity`: slots of an expert for the rows of one rank; 0: there are none.
  expert_exchange(rank_rows& rows, int local_experts, int capacity = 0) : counted_(rows, local_experts) {
    if (capacity > 0) fixed_.emplace(rows, local_experts, capacity);
  }

  int rank() const { return counted_.rank(); }
  int ranks() const { return counted_.ranks(); }

  at::Tensor dispatch(at::Tensor const& rows, routing const& where, handle& made) {
    made.in_slots_ = where.rows.empty();
    if (!made.in_slots_) return counted_.dispatch(rows, where, made.counted_);
    made.slots_ = fixed_.value().rows();
    return fixed_->dispatch(rows, {}, made.fixed_);
  }
  at::Tensor combine(at::Tensor const& rows, handle& made) {
    return made.in_slots_ ? fixed_.value().combine(rows, made.fixed_) : counted_.combine(rows, made.counted_);
  }
  at::Tensor dispatch_backward(at::Tensor const& rows, handle& made) {
    return made.in_slots_ ? fixed_.value().dispatch_backward(rows, made.fixed_)
                          : counted_.dispatch_backward(rows, made.counted_);
  }
  at::Tensor combine_backward(at::Tensor const& rows, handle& made) {
    return made.in_slots_ ? fixed_.value().combine_backward(rows, made.fixed_)
                          : counted_.combine_backward(rows, made.counted_);
  }

private:
  counted counted_;
  std::optional<fixed> fixed_;
};
static_assert(stretto::expert_communicator<expert_exchange>);

} // namespace train_moe
