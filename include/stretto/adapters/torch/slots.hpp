#pragma once

#include <stretto/detail/cxx20.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <tuple>

namespace stretto {
inline namespace v0 {
namespace torch {

/// A router's choices in slots: `capacity` of them for every expert, however often it was chosen. Slot s of expert e is row
/// e * capacity + s; an expert's choices fill its slots in their order. Choice c of token t has number t * k + c.
struct slot_order {
  /// [experts * capacity], 64-bit: the choice in each slot, anything in bounds where it is empty.
  at::Tensor source;
  at::Tensor empty; ///< [experts * capacity, 1], bool
  /// [tokens * k], 64-bit: the slot of each choice, anything in bounds where it is lost.
  at::Tensor place;
  at::Tensor lost; ///< [tokens * k, 1], bool: the expert was full
};

/// Places `ids` [tokens, k] (64-bit integers, on any device) where they lie: nothing waits for the host, and all sizes are
/// known before. `use`, if given, is two 64-bit integers beside the ids that the caller sets to zero: the choices that were
/// lost are added to the first, and the second becomes the most choices that one expert has had. Whoever trains reads it
/// when the step is over, since lost choices are computed as zeros.
/// Ids in host memory are checked (`std::out_of_range`).
inline slot_order route_to_slots(at::Tensor const& ids, int experts, std::int64_t capacity,
                                 at::Tensor const& use = {}) {
  if (experts < 1 || capacity < 1)
    throw std::invalid_argument("route_to_slots: " + std::to_string(experts) + " experts with " +
                                std::to_string(capacity) + " slots each; there must be at least one of both");
  auto const count = ids.numel();
  auto const numbers = ids.options();
  auto const [sorted, order] = at::sort(ids.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  if (ids.is_cpu() && count > 0)
    for (auto const id : {sorted[0].item<std::int64_t>(), sorted[count - 1].item<std::int64_t>()})
      if (id < 0 || id >= experts)
        throw std::out_of_range("route_to_slots: id " + std::to_string(id) + " of " +
                                std::to_string(experts) + " experts");
  auto const bounds = at::searchsorted(sorted, at::arange(experts + 1, numbers));
  auto const first = bounds.narrow(0, 0, experts);
  auto const chosen = at::diff(bounds);

  slot_order made;
  auto const slot = at::arange(capacity, numbers);
  made.empty = slot.ge(chosen.unsqueeze(1)).view({-1, 1});
  made.source = count == 0
                    ? at::zeros({experts * capacity}, numbers)
                    : order.index_select(0, (first.unsqueeze(1) + slot).clamp_max_(count - 1).flatten());
  auto const of_expert = at::arange(count, numbers).sub_(first.index_select(0, sorted));
  auto const in_order = sorted.mul(capacity).add_(of_expert).masked_fill_(of_expert.ge(capacity), -1);
  made.place = at::empty_like(in_order).scatter_(0, order, in_order);
  made.lost = made.place.lt(0).unsqueeze(1);
  made.place.clamp_min_(0);
  if (use.defined()) {
    use.select(0, 0).add_(made.lost.sum());
    auto most = use.select(0, 1);
    at::maximum_out(most, most, (chosen.max)());
  }
  return made;
}

namespace detail {

/// Rows `which` of `x`, zeros where `none`.
inline at::Tensor rows_or_zeros(at::Tensor const& x, at::Tensor const& which, at::Tensor const& none) {
  // Of no rows nothing can be selected, not even for places that are zeros in the end.
  if (x.size(0) == 0) return at::zeros({which.numel(), x.size(1)}, x.options());
  return x.index_select(0, which).masked_fill_(none, 0);
}

struct rows_to_slots_function : ::torch::autograd::Function<rows_to_slots_function> {
  static at::Tensor forward(::torch::autograd::AutogradContext* saved, at::Tensor const& x,
                            slot_order const& slots, std::int64_t copies) {
    saved->save_for_backward({slots.place, slots.lost});
    saved->saved_data["copies"] = copies;
    return rows_or_zeros(x, copies == 1 ? slots.source : slots.source.floor_divide(copies), slots.empty);
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* saved,
                                                   ::torch::autograd::variable_list output_gradients) {
    auto const places = saved->get_saved_variables();
    auto const copies = saved->saved_data["copies"].toInt();
    auto gradient = rows_or_zeros(output_gradients[0], places[0], places[1]);
    if (copies != 1) gradient = gradient.view({gradient.size(0) / copies, copies, gradient.size(1)}).sum(1);
    return {gradient, {}, {}};
  }
};

struct rows_from_slots_function : ::torch::autograd::Function<rows_from_slots_function> {
  static at::Tensor forward(::torch::autograd::AutogradContext* saved, at::Tensor const& x,
                            slot_order const& slots) {
    saved->save_for_backward({slots.source, slots.empty});
    return rows_or_zeros(x, slots.place, slots.lost);
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* saved,
                                                   ::torch::autograd::variable_list output_gradients) {
    auto const places = saved->get_saved_variables();
    return {rows_or_zeros(output_gradients[0], places[0], places[1]), {}};
  }
};

} // namespace detail

/// Rows `x` [tokens, channels], each taken `copies` times, into slots: [experts * capacity, channels], zeros in empty ones.
/// The gradient gathers through `place` and sums the copies of a row in their order, with no scattered addition, so that it
/// is the same on every run and device.
inline at::Tensor rows_to_slots(at::Tensor const& x, slot_order const& slots, std::int64_t copies = 1) {
  return detail::rows_to_slots_function::apply(x, slots, copies);
}

/// Back from slots to choices: [tokens * k, channels], zeros for lost ones. The gradient of empty slots is zero.
inline at::Tensor rows_from_slots(at::Tensor const& x, slot_order const& slots) {
  return detail::rows_from_slots_function::apply(x, slots);
}

} // namespace torch
} // namespace v0
} // namespace stretto
