#pragma once

#include "chosen_rows.hpp"
#include "step_data.hpp"

#include <stretto/adapters/torch/device_order.hpp>
#include <stretto/adapters/torch/host_copy.hpp>
#include <stretto/adapters/torch/slots.hpp>

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <variant>
#include <vector>

namespace train_moe {

/// The way of rows from their tokens to the experts and back: as many as there are, or in slots where the step has a
/// capacity.
class row_way {
public:
  row_way() = default;
  row_way(at::Tensor const& ids, int experts, step_data const& step, int layer, int microbatch) {
    if (step.capacity > 0)
      way_ = stretto::torch::route_to_slots(ids, experts, step.capacity, step.slot_use[layer][microbatch]);
    else if (auto const* fused = ids.is_cuda() ? gpu_operations() : nullptr)
      way_ = grouped(fused->group(ids, experts));
    else
      way_ = stretto::torch::route_by_expert(ids, experts);
  }

  /// `x` [tokens, hidden] by expert, each row `copies` times.
  at::Tensor to_experts(at::Tensor const& x, std::int64_t copies) const {
    if (auto const* slots = std::get_if<in_slots>(&way_))
      return stretto::torch::rows_to_slots(x, *slots, copies);
    auto const& way = std::get<counted>(way_);
    return spread_rows(x, way.order, way.inverse, copies);
  }
  /// `x` and the rows that came back, by weight.
  at::Tensor to_tokens(at::Tensor const& x, at::Tensor const& rows, at::Tensor const& weights) const {
    if (auto const* slots = std::get_if<in_slots>(&way_))
      return weigh_rows(x, stretto::torch::rows_from_slots(rows, *slots), weights);
    auto const& way = std::get<counted>(way_);
    return weigh_rows(x, rows, weights, way.order, way.inverse);
  }
  /// Rows of each expert, nothing if they are in slots. The only place where the host waits for a device: counts must be
  /// known before the rows can go.
  std::vector<int> rows() {
    if (auto* way = std::get_if<counted>(&way_)) return way->rows.template read<int>();
    return {};
  }

private:
  using counted = stretto::torch::routed_rows;
  using in_slots = stretto::torch::slot_order;

  static counted grouped(grouped_choices const& by) {
    return {by.order, by.inverse, stretto::torch::host_copy(by.rows)};
  }

  std::variant<counted, in_slots> way_;
};

} // namespace train_moe
