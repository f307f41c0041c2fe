#pragma once

#include <stretto/adapters/torch/expert_order.hpp>
#include <stretto/adapters/torch/host_copy.hpp>

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

/// A router's choices grouped by expert, where they lie: `order` and `inverse` as in `expert_order`; the rows of each
/// expert come to the host later.
struct routed_rows {
  at::Tensor order, inverse;
  host_copy rows;
};

namespace detail {

inline at::Tensor inverse_of(at::Tensor const& order) {
  return at::empty_like(order).scatter_(0, order, at::arange(order.numel(), order.options()));
}

/// 0, 1, 2, ... where the i-th stretch, `counts[i]` long, is shifted by `shifts[i]`.
inline at::Tensor shifted(std::vector<std::int64_t> const& counts, std::vector<std::int64_t> const& shifts,
                          std::int64_t total, at::Device device) {
  auto const stretches = static_cast<std::int64_t>(counts.size());
  // In one small copy, which does not wait for the device.
  auto both = at::empty({2, stretches}, at::TensorOptions(at::kLong).pinned_memory(true));
  auto* to = both.mutable_data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < counts.size(); ++i) {
    to[i] = counts[i];
    to[counts.size() + i] = shifts[i];
  }
  auto const there = both.to(device, /*non_blocking=*/true);
  return at::repeat_interleave(there[1], there[0], 0, total).add_(at::arange(total, there.options()));
}

}  // namespace detail

/// `order_by_expert` for ids that may lie on a device, where nothing waits for the host; ids there are not checked.
inline routed_rows route_by_expert(at::Tensor const& ids, int experts) {
  if (ids.is_cpu()) {
    auto made = order_by_expert(ids, experts);
    return {std::move(made.order), std::move(made.inverse), host_copy(at::tensor(made.rows, at::kLong))};
  }
  auto const [sorted, order] = at::sort(ids.flatten(), /*stable=*/true, /*dim=*/0, /*descending=*/false);
  auto const bounds = at::searchsorted(sorted, at::arange(experts + 1, sorted.options()));
  return {order, detail::inverse_of(order), host_copy(at::diff(bounds))};
}

/// `order_arrived` with the orders on a device.
inline expert_order order_arrived(std::vector<int> const& counts, int experts, at::Device device) {
  if (device.is_cpu()) return order_arrived(counts, experts);
  auto const width = static_cast<std::size_t>(experts);
  expert_order made{{}, {}, std::vector<std::int64_t>(width)};
  std::vector<std::int64_t> arrived(counts.begin(), counts.end()), first(counts.size()), back(counts.size());
  std::vector<std::int64_t> by_expert, shift;
  std::int64_t total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    first[i] = total;
    total += counts[i];
    made.rows[i % width] += counts[i];
  }
  std::int64_t place = 0;
  for (std::size_t expert = 0; expert < width; ++expert)
    for (std::size_t i = expert; i < counts.size(); i += width) {
      by_expert.push_back(arrived[i]);
      shift.push_back(first[i] - place);
      back[i] = place - first[i];
      place += arrived[i];
    }
  made.order = detail::shifted(by_expert, shift, total, device);
  made.inverse = detail::shifted(arrived, back, total, device);
  return made;
}

}  // namespace torch
}  // namespace v0
}  // namespace stretto
