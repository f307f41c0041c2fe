#pragma once

#include <stretto/adapters/torch/expert_order.hpp>
#include <stretto/adapters/torch/host_copy.hpp>

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

/// Rows of each expert, which come to the host later: as they are, or counted there from the ids of a router's choices.
class expert_counts {
public:
  expert_counts() = default;
  expert_counts(host_copy rows) : coming_(std::move(rows)) {}
  expert_counts(at::Tensor const& ids, int experts) : coming_(ids), experts_(experts) {}

  /// Waits for them. Throws `std::out_of_range` when an id is no expert.
  template <class Integer> std::vector<Integer> read() {
    if (experts_ == 0) return coming_.template read<Integer>();
    std::vector<Integer> rows(static_cast<std::size_t>(experts_));
    for (auto const id : coming_.template read<std::int64_t>()) ++rows[detail::checked(id, experts_)];
    return rows;
  }

private:
  host_copy coming_;
  int experts_ = 0; ///< 0: rows come, no ids
};

/// A router's choices grouped by expert, where they lie: `order` and `inverse` as in `expert_order`.
struct routed_rows {
  at::Tensor order, inverse;
  expert_counts rows;
};

/// `order_by_expert` for ids that may lie on a device, where nothing waits for the host: an id that is no expert is refused
/// when the rows are read.
inline routed_rows route_by_expert(at::Tensor const& ids, int experts) {
  detail::checked_experts(experts);
  if (ids.is_cpu()) {
    auto made = order_by_expert(ids, experts);
    return {std::move(made.order), std::move(made.inverse), host_copy(at::tensor(made.rows, at::kLong))};
  }
  auto const flat = ids.flatten();
  auto order = std::get<1>(at::sort(flat, /*stable=*/true, /*dim=*/0, /*descending=*/false));
  // Sorted, a permutation leads back. To scatter into it takes torch 15 kernels where bits must repeat.
  auto inverse = std::get<1>(at::sort(order));
  return {std::move(order), std::move(inverse), {flat, experts}};
}

} // namespace torch
} // namespace v0
} // namespace stretto
