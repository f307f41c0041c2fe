#pragma once

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

/// Groups the choices of a router: `ids` [tokens, k], 64-bit integers in host memory. Choice c of token t is row
/// t * k + c. Throws `std::out_of_range` when an id is no expert.
inline expert_order order_by_expert(at::Tensor const& ids, int experts) {
  auto const flat = ids.contiguous();
  auto const count = flat.numel();
  auto const* id = flat.const_data_ptr<std::int64_t>();
  expert_order made{at::empty({count}, at::kLong), at::empty({count}, at::kLong),
                    std::vector<std::int64_t>(static_cast<std::size_t>(experts))};
  for (std::int64_t i = 0; i < count; ++i) {
    if (id[i] < 0 || id[i] >= experts)
      throw std::out_of_range("order_by_expert: id " + std::to_string(id[i]) + " of " + std::to_string(experts) +
                              " experts");
    ++made.rows[static_cast<std::size_t>(id[i])];
  }
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

/// Groups rows that lie by source rank and, within it, by expert: `counts` as in `expert_parallel::handle::arrived`.
inline expert_order order_arrived(std::vector<int> const& counts, int experts) {
  auto const width = static_cast<std::size_t>(experts);
  expert_order made{{}, {}, std::vector<std::int64_t>(width)};
  std::vector<std::int64_t> first(counts.size());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    first[i] = total;
    total += counts[i];
    made.rows[i % width] += counts[i];
  }
  made.order = at::empty({total}, at::kLong);
  made.inverse = at::empty({total}, at::kLong);
  auto* order = made.order.mutable_data_ptr<std::int64_t>();
  auto* inverse = made.inverse.mutable_data_ptr<std::int64_t>();
  std::int64_t place = 0;
  for (std::size_t expert = 0; expert < width; ++expert)
    for (std::size_t i = expert; i < counts.size(); i += width)
      for (std::int64_t row = first[i]; row < first[i] + counts[i]; ++row) {
        order[place] = row;
        inverse[row] = place++;
      }
  return made;
}

}  // namespace torch
}  // namespace v0
}  // namespace stretto
