#pragma once

#include "fused.hpp"
#include "parameters.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <vector>

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
  /// Writes `from` [..., heads, head], rotated, to `to`.
  static void turn(at::Tensor const& to, at::Tensor const& from, at::Tensor const& cosine,
                   at::Tensor const& sine, double direction) {
    auto const half = from.size(-1) / 2;
    auto const a = from.narrow(-1, 0, half);
    auto const b = from.narrow(-1, half, half);
    auto first = to.narrow(-1, 0, half);
    auto second = to.narrow(-1, half, half);
    at::mul_out(first, a, cosine).addcmul_(b, sine, -direction);
    at::mul_out(second, b, cosine).addcmul_(a, sine, direction);
  }
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* saved,
                                                at::Tensor const& qkv, at::Tensor const& cosine,
                                                at::Tensor const& sine) {
    // Parts of one tensor that nobody changes: as far as the engine is concerned, three tensors.
    at::AutoDispatchBelowADInplaceOrView const as_tensors;
    saved->save_for_backward({cosine, sine});
    auto const parts = qkv.unbind(2);
    if (auto const* fused = fused_for(qkv, qkv.size(-1) / 2))
      return fused->turn(parts[0], parts[1], parts[2], cosine, sine, 1.0).unbind(2);
    auto const out = at::empty_like(qkv, at::MemoryFormat::Contiguous);
    turn(out.narrow(2, 0, 2), qkv.narrow(2, 0, 2), cosine, sine, 1.0);
    out.select(2, 2).copy_(parts[2]);
    return out.unbind(2);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    auto const angles = saved->get_saved_variables();
    auto const &cosine = angles[0], &sine = angles[1], &dq = gradients[0], &dk = gradients[1],
               &dv = gradients[2];
    if (auto const* fused = fused_for(dv, dv.size(-1) / 2))
      return {fused->turn(dq, dk, dv, cosine, sine, -1.0), {}, {}};
    auto const out = at::empty({dv.size(0), dv.size(1), 3, dv.size(2), dv.size(3)}, dv.options());
    turn(out.select(2, 0), dq, cosine.squeeze(1), sine.squeeze(1), -1.0);
    turn(out.select(2, 1), dk, cosine.squeeze(1), sine.squeeze(1), -1.0);
    out.select(2, 2).copy_(dv);
    return {out, {}, {}};
  }
};

} // namespace detail

/// Queries, keys and values, each [batch, sequence, heads, head], of `qkv` [batch, sequence, 3, heads, head].
inline std::vector<at::Tensor> rotate(at::Tensor const& qkv, rotation const& by) {
  return detail::rotate_function::apply(qkv, by.cosine, by.sine);
}

} // namespace train_moe
