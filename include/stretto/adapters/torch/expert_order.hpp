#pragma once

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

/// Fills `order` and `inverse` for `counts` by source rank and, within it, by expert; returns the rows of each expert.
/// Throws `std::invalid_argument` where no rank has sent such counts.
inline std::vector<std::int64_t> write_arrived(std::vector<int> const& counts, int experts,
                                               std::int64_t* order, std::int64_t* inverse) {
  std::size_t const width = checked_experts(experts);
  if (counts.size() % width != 0)
    throw std::invalid_argument(std::to_string(counts.size()) + " counts of rows are not " +
                                std::to_string(experts) + " from every rank");
  std::vector<std::int64_t> rows(width), first(counts.size());
  std::int64_t total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    first[i] = total;
    total += counts[i];
    rows[i % width] += counts[i];
  }
  std::int64_t place = 0;
  for (std::size_t expert = 0; expert < width; ++expert)
    for (std::size_t i = expert; i < counts.size(); i += width)
      for (std::int64_t row = first[i]; row < first[i] + counts[i]; ++row) {
        order[place] = row;
        inverse[row] = place++;
      }
  return rows;
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

/// Groups rows that lie by source rank and, within it, by expert: `counts` as in `expert_parallel::handle::arrived`.
/// Throws `std::invalid_argument` when there are no experts, or counts are not so many from every rank.
inline expert_order order_arrived(std::vector<int> const& counts, int experts) {
  auto const total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  expert_order made{at::empty({total}, at::kLong), at::empty({total}, at::kLong), {}};
  made.rows = detail::write_arrived(counts, experts, made.order.mutable_data_ptr<std::int64_t>(),
                                    made.inverse.mutable_data_ptr<std::int64_t>());
  return made;
}

} // namespace torch
} // namespace v0
} // namespace stretto
