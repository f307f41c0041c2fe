#pragma once

#include "norm.hpp"

#include <stretto/adapters/torch/linear.hpp>

#include <ATen/ATen.h>

namespace train_moe {
namespace detail {

/// Products of a GPU that add weight gradients of bf16 to their sums in float as they are made.
struct adding_product_op : private stretto::torch::linear_op {
  using linear_op::input_gradient;
  using linear_op::output;
  void add_weight_gradient(at::Tensor const& x, at::Tensor const& dy, at::Tensor const& sum) const {
    auto into = sum;
    at::addmm_out(into, sum, x.t(), dy, at::kFloat);
  }
};

/// Of rows that a norm makes again for the gradient of the weight.
template <stretto::torch::weighted_op Op> struct product_of_normed_op : Op {
  normed_rows x;
  at::Tensor input() const { return x.made_again(); }
};

} // namespace detail

/// Calls with the operation for products of rows like these.
template <class Call> at::Tensor with_product_op(at::Tensor const& x, Call const& call) {
  if (x.is_cuda() && x.scalar_type() == at::kBFloat16) return call(detail::adding_product_op{});
  return call(stretto::torch::linear_op{});
}

/// `y = x W` for rows `x` [n, in] and a weight [in, out].
inline at::Tensor product(at::Tensor const& x, stretto::torch::parameter& weight) {
  return with_product_op(x, [&](auto op) { return stretto::torch::apply_weighted(op, x, weight); });
}
inline at::Tensor product(normed_rows const& x, stretto::torch::parameter& weight) {
  return with_product_op(x.rows, [&]<class Op>(Op op) {
    detail::product_of_normed_op<Op> const of{op, {{}, x.from, x.gain}};
    return stretto::torch::apply_weighted(of, x.rows, weight);
  });
}

} // namespace train_moe
