#pragma once

#include <stretto/detail/cxx20.hpp>

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

/// A grouping of rows by expert, stable within an expert: row i of the grouped ones is row `order[i]` of the others and
/// `inverse` leads back (64-bit integer tensors, for `permute_rows`). `rows[e]` rows belong to expert e.
struct expert_order {
  at::Tensor order;
  at::Tensor inverse;
  std::vector<std::int64_t> rows;
};

namespace detail {

inline std::size_t checked_experts(int experts) {
  if (experts < 1)
    throw std::invalid_argument("rows are grouped by " + std::to_string(experts) +
                                " experts; there must be one at least");
  return static_cast<std::size_t>(experts);
}

inline std::size_t checked(std::int64_t id, int experts) {
  if (id < 0 || id >= experts)
    throw std::out_of_range("a choice of expert " + std::to_string(id) + ", but there are " +
                            std::to_string(experts) + " experts");
  return static_cast<std::size_t>(id);
}

} // namespace detail

/// Groups the choices of a router: `ids` [tokens, k], 64-bit integers in host memory. Choice c of token t is row
/// t * k + c. Throws `std::out_of_range` when an id is no expert, `std::invalid_argument` when there are none.
inline expert_order order_by_expert(at::Tensor const& ids, int experts) {
  auto const flat = ids.contiguous();
  auto const count = flat.numel();
  auto const* id = flat.const_data_ptr<std::int64_t>();
  expert_order made{at::empty({count}, at::kLong), at::empty({count}, at::kLong),
                    std::vector<std::int64_t>(detail::checked_experts(experts))};
  for (std::int64_t i = 0; i < count; ++i) ++made.rows[detail::checked(id[i], experts)];
  std::vector<std::int64_t> next(made.rows.size());
  for (std::size_t e = 1; e < next.size(); ++e) next[e] = next[e - 1] + made.rows[e - 1];
  auto* order = made.order.mutable_data_ptr<std::int64_t>();
  auto* inverse = made.inverse.mutable_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < count; ++i) {
    auto const place = next[static_cast<std::size_t>(id[i])]++;
    order[place] = i;
    inverse[i] = place;
  }
  return made;
}

} // namespace torch
} // namespace v0
} // namespace stretto
