#pragma once

#include <stretto/adapters/torch/weighted.hpp>

#include <ATen/ATen.h>

namespace stretto {
inline namespace v0 {
namespace torch {

/// A matrix product with a weight [in, out]: what `linear` is made of, and a beginning for operations of your own.
struct linear_op {
  at::Tensor output(at::Tensor const& x, at::Tensor const& w) const { return x.mm(w); }
  at::Tensor input_gradient(at::Tensor const& dy, at::Tensor const& w) const { return dy.mm(w.t()); }
  at::Tensor weight_gradient(at::Tensor const& x, at::Tensor const& dy, at::Tensor const&) const {
    return x.t().mm(dy);
  }
};

/// `y = x W` for rows `x` [n, in] and a weight [in, out].
inline at::Tensor linear(at::Tensor const& x, parameter& weight) {
  return apply_weighted(linear_op{}, x, weight);
}

} // namespace torch
} // namespace v0
} // namespace stretto
