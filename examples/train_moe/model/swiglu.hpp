#pragma once

#include "fused.hpp"
#include "parameters.hpp"
#include "product.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

namespace train_moe {
namespace detail {

struct swiglu_function : torch::autograd::Function<swiglu_function> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, at::Tensor const& both) {
    saved->save_for_backward({both});
    auto const width = both.size(1) / 2;
    if (auto const* fused = fused_for(both, width)) return fused->swiglu(both);
    return at::silu(both.narrow(1, 0, width)).mul_(both.narrow(1, width, width));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    auto const both = saved->get_saved_variables()[0];
    auto const width = both.size(1) / 2;
    if (auto const* fused = fused_for(both, width)) return {fused->swiglu_gradient(both, gradients[0])};
    auto const gate = both.narrow(1, 0, width);
    auto const up = both.narrow(1, width, width);
    auto const& dy = gradients[0];
    auto out = at::empty_like(both);
    auto of_gate = out.narrow(1, 0, width);
    auto of_up = out.narrow(1, width, width);
    at::silu_backward_out(of_gate, dy.mul(up), gate);
    at::silu_out(of_up, gate).mul_(dy);
    return {out};
  }
};

} // namespace detail

/// `silu(gate) * up` for rows [n, 2 * width], gate in front.
inline at::Tensor swiglu(at::Tensor const& both) { return detail::swiglu_function::apply(both); }

/// A SwiGLU layer that every token visits.
class feed_forward {
public:
  feed_forward(initializer const& init, char const* up, char const* down, int width,
               double residual_deviation)
      : up_(init.normal(up, {init.config().hidden, 2 * width}, 1.0 / std::sqrt(init.config().hidden))),
        down_(init.normal(down, {width, init.config().hidden}, residual_deviation)) {}

  at::Tensor operator()(at::Tensor const& x) { return product(swiglu(product(x, up_)), down_); }
  template <class Act> void for_each_parameter(Act&& f) {
    f(model_parameter{&up_});
    f(model_parameter{&down_});
  }

private:
  stretto::torch::parameter up_;
  stretto::torch::parameter down_;
};

} // namespace train_moe
