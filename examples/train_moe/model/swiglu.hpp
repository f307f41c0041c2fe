#pragma once

#include "fused.hpp"
#include "parameters.hpp"
#include "product.hpp"

#include <stretto/adapters/torch/weighted.hpp>

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

namespace train_moe {

/// `silu(gate) * up` for rows [n, 2 * width], gate in front.
inline at::Tensor swiglu(at::Tensor const& both) {
  auto const width = both.size(1) / 2;
  if (auto const* fused = fused_for(both, width)) return fused->swiglu(both);
  return at::silu(both.narrow(1, 0, width)).mul_(both.narrow(1, width, width));
}

/// The gradient of `both` from that of `swiglu(both)`, and `swiglu(both)` once more; with `along` also the sums of the products
/// of these two. The gradient takes the memory of `both` where that is no leaf: `both` is then gone, and a later backward through
/// it refused.
inline swiglu_results swiglu_backward(at::Tensor const& both, at::Tensor const& dy, bool along = false) {
  auto const width = both.size(1) / 2;
  if (auto const* fused = fused_for(both, width)) return fused->swiglu_backward(both, dy, along);
  auto const gate = both.narrow(1, 0, width);
  auto const up = both.narrow(1, width, width);
  auto const of_silu = dy.mul(up), silu = at::silu(gate);
  swiglu_results made{both.is_leaf() ? at::empty_like(both) : both.detach(), silu.mul(up), {}};
  if (along) {
    auto const wide = wide_type(dy.scalar_type());
    made.along = made.y.to(wide).mul(dy.to(wide)).sum(1, /*keepdim=*/true);
  }
  auto of_gate = made.d_both.narrow(1, 0, width);
  auto of_up = made.d_both.narrow(1, width, width);
  at::mul_out(of_up, silu, dy);
  at::silu_backward_out(of_gate, of_silu, gate);
  return made;
}

/// `swiglu` and behind it an operation that is linear. What lies between them is not kept but made again in backward, where
/// that takes hardly more than reading `both`, which the gradient has to.
template <stretto::torch::weighted_op Op> struct after_swiglu {
  Op op;
  /// From the gradient of the input to that of the weight; with a frozen weight until the graph goes.
  mutable at::Tensor between{};

  at::Tensor output(at::Tensor const& both, at::Tensor const& w) const { return op.output(swiglu(both), w); }
  at::Tensor input_gradient(at::Tensor const& both, at::Tensor const& dy, at::Tensor const& w) const {
    return keep(swiglu_backward(both, op.input_gradient(dy, w)));
  }
  at::Tensor weight_gradient(at::Tensor const& both, at::Tensor const& dy, at::Tensor const& w) const
      requires(!stretto::torch::accumulating_op<Op>) {
    return op.weight_gradient(take(both), dy, w);
  }
  void add_weight_gradient(at::Tensor const& both, at::Tensor const& dy,
                           at::Tensor const& sum) const requires stretto::torch::accumulating_op<Op> {
    op.add_weight_gradient(take(both), dy, sum);
  }

protected:
  at::Tensor keep(swiglu_results made) const {
    between = std::move(made.y);
    return std::move(made.d_both);
  }

private:
  at::Tensor take(at::Tensor const& both) const {
    return between.defined() ? std::exchange(between, {}) : swiglu(both);
  }
};

/// Of rows whose results are multiplied by weights later. Its second input are the logarithms of these, which it has no use for;
/// but dy is that of the unweighted result, and so w dL/dw = <dy, result> = <dy W^T, swiglu>, the gradient of log w, is made in
/// passing. It is right for w = 0 too.
template <stretto::torch::weighted_op Op> struct after_swiglu_of_weighed : after_swiglu<Op> {
  mutable at::Tensor of_log_weights{};

  at::Tensor input_gradient(at::Tensor const& both, at::Tensor const& dy, at::Tensor const& w) const {
    auto made = swiglu_backward(both, this->op.input_gradient(dy, w), /*along=*/true);
    of_log_weights = std::move(made.along);
    return this->keep(std::move(made));
  }
  at::Tensor beside_gradient() const { return std::exchange(of_log_weights, {}); }
};

/// A SwiGLU layer that every token visits.
class feed_forward {
public:
  feed_forward(initializer const& init, char const* up, char const* down, int width,
               double residual_deviation)
      : up_(init.normal(up, {init.config().hidden, 2 * width}, 1.0 / std::sqrt(init.config().hidden))),
        down_(init.normal(down, {width, init.config().hidden}, residual_deviation)) {}

  at::Tensor operator()(normed_rows const& x) {
    return with_product_op(x.rows, [&]<class Op>(Op op) {
      return stretto::torch::apply_weighted(after_swiglu<Op>{op}, product(x, up_), down_);
    });
  }
  template <class Act> void for_each_parameter(Act&& f) {
    f(model_parameter{&up_});
    f(model_parameter{&down_});
  }

private:
  stretto::torch::parameter up_;
  stretto::torch::parameter down_;
};

} // namespace train_moe
