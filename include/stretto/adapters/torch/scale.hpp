#pragma once

#include <stretto/adapters/torch/weighted.hpp>

#include <ATen/ATen.h>

namespace stretto {
inline namespace v0 {
namespace torch {

struct scale_op {
  at::Tensor output(at::Tensor const& x, at::Tensor const& gain) const { return x * gain; }
  at::Tensor input_gradient(at::Tensor const& dy, at::Tensor const& gain) const { return dy * gain; }
  at::Tensor weight_gradient(at::Tensor const& x, at::Tensor const& dy, at::Tensor const&) const {
    return (x * dy).sum(0);
  }
};

/// One gain per channel, as at the end of a norm: rows `x` [n, channels] times a weight [channels].
inline at::Tensor scale(at::Tensor const& x, parameter& gain) { return apply_weighted(scale_op{}, x, gain); }

}  // namespace torch
}  // namespace v0
}  // namespace stretto
