#pragma once

#include "parameters.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <utility>

namespace train_moe {

/// Angles of rotary position embedding (arXiv 2104.09864): cosine and sine, [sequence, 1, 1, head / 2].
struct rotation {
  at::Tensor cosine, sine;

  rotation(int sequence, int head, at::TensorOptions const& options) {
    auto const frequency = at::pow(10000.0, at::arange(0, head, 2, at::kDouble).div_(-head));
    auto const angle = at::arange(sequence, at::kDouble).view({-1, 1, 1, 1}).mul(frequency);
    cosine = angle.cos().to(options);
    sine = angle.sin().to(options);
  }
};

namespace detail {

/// Queries and keys rotated, values copied. The transpose of a rotation is the rotation by the negative angle.
struct rotate_function : torch::autograd::Function<rotate_function> {
  static at::Tensor turn(at::Tensor const& qkv, at::Tensor const& cosine, at::Tensor const& sine, double direction) {
    auto out = at::empty_like(qkv, at::MemoryFormat::Contiguous);
    out.narrow(2, 2, 1).copy_(qkv.narrow(2, 2, 1));
    auto const half = qkv.size(-1) / 2;
    auto const from = qkv.narrow(2, 0, 2);
    auto const to = out.narrow(2, 0, 2);
    auto const a = from.narrow(-1, 0, half);
    auto const b = from.narrow(-1, half, half);
    auto first = to.narrow(-1, 0, half);
    auto second = to.narrow(-1, half, half);
    at::mul_out(first, a, cosine).addcmul_(b, sine, -direction);
    at::mul_out(second, b, cosine).addcmul_(a, sine, direction);
    return out;
  }
  static at::Tensor forward(torch::autograd::AutogradContext* saved, at::Tensor const& qkv, at::Tensor const& cosine,
                            at::Tensor const& sine) {
    saved->save_for_backward({cosine, sine});
    return turn(qkv, cosine, sine, 1.0);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    auto const angles = saved->get_saved_variables();
    return {turn(gradients[0], angles[0], angles[1], -1.0), {}, {}};
  }
};

}  // namespace detail

/// `qkv` is [batch, sequence, 3, heads, head].
inline at::Tensor rotate(at::Tensor const& qkv, rotation const& by) {
  return detail::rotate_function::apply(qkv, by.cosine, by.sine);
}

}  // namespace train_moe
