#pragma once

#include <stretto/adapters/torch/weighted.hpp>

#include <ATen/ATen.h>

#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace torch {

/// One matrix product per expert. An expert without rows costs nothing; its weight gradient is zero, not undefined.
struct expert_linear_op {
  std::vector<std::int64_t> rows;

  at::Tensor output(at::Tensor const& x, at::Tensor const& w) const {
    auto y = at::empty({x.size(0), w.size(2)}, x.options());
    for_each_expert([&](std::int64_t expert, std::int64_t first, std::int64_t count) {
      auto part = y.narrow(0, first, count);
      at::mm_out(part, x.narrow(0, first, count), w[expert]);
    });
    return y;
  }
  at::Tensor input_gradient(at::Tensor const& dy, at::Tensor const& w) const {
    auto dx = at::empty({dy.size(0), w.size(1)}, dy.options());
    for_each_expert([&](std::int64_t expert, std::int64_t first, std::int64_t count) {
      auto part = dx.narrow(0, first, count);
      at::mm_out(part, dy.narrow(0, first, count), w[expert].t());
    });
    return dx;
  }
  at::Tensor weight_gradient(at::Tensor const& x, at::Tensor const& dy, at::Tensor const& w) const {
    auto dw = at::zeros(w.sizes(), w.options());
    for_each_expert([&](std::int64_t expert, std::int64_t first, std::int64_t count) {
      auto part = dw[expert];
      at::mm_out(part, x.narrow(0, first, count).t(), dy.narrow(0, first, count));
    });
    return dw;
  }

private:
  template <class Call> void for_each_expert(Call const& call) const {
    std::int64_t first = 0;
    for (std::size_t expert = 0; expert < rows.size(); ++expert) {
      if (rows[expert] > 0) call(static_cast<std::int64_t>(expert), first, rows[expert]);
      first += rows[expert];
    }
  }
};

/// `y = x W[e]` for rows `x` [n, in] grouped by expert and a weight [experts, in, out], by an operation of your own whose
/// `rows[e]` are those of expert e. Throws `std::invalid_argument` when the counts do not fit the shapes.
template <weighted_op Op> at::Tensor expert_linear(at::Tensor const& x, Op op, parameter& weight) {
  std::int64_t total = 0;
  for (auto const count : op.rows) total += count;
  if (total != x.size(0) || static_cast<std::int64_t>(op.rows.size()) != weight.leaf().size(0)) {
    throw std::invalid_argument("expert_linear '" + weight.name() + "': " + std::to_string(op.rows.size()) +
                                " counts with sum " + std::to_string(total) + " for " +
                                std::to_string(x.size(0)) + " rows and " +
                                std::to_string(weight.leaf().size(0)) + " experts");
  }
  return apply_weighted(std::move(op), x, weight);
}

/// The same by torch's matrix products, `rows[e]` of them for expert e.
inline at::Tensor expert_linear(at::Tensor const& x, std::vector<std::int64_t> rows, parameter& weight) {
  return expert_linear(x, expert_linear_op{std::move(rows)}, weight);
}

} // namespace torch
} // namespace v0
} // namespace stretto
