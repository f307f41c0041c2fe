#pragma once

#include "parameters.hpp"

#include <stretto/adapters/torch/scale.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

namespace train_moe {
namespace detail {

/// `y = x / sqrt(mean(x^2) + epsilon)` per row, with `dx = (dy - y mean(dy y)) / sqrt(...)`.
struct unit_rows_function : torch::autograd::Function<unit_rows_function> {
  static constexpr double epsilon = 1e-6;

  static at::Tensor forward(torch::autograd::AutogradContext* saved, at::Tensor const& x) {
    auto const wide = x.to(wide_type(x.scalar_type()));
    auto const length = at::linalg_vector_norm(wide, 2, at::IntArrayRef{-1}, /*keepdim=*/true);
    auto const inverse = length.square_().div_(static_cast<double>(x.size(-1))).add_(epsilon).rsqrt_();
    auto const y = wide.mul(inverse).to(x.scalar_type());
    saved->save_for_backward({y, inverse});
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    auto const variables = saved->get_saved_variables();
    auto const& inverse = variables[1];
    auto const y = variables[0].to(inverse.scalar_type());
    auto const dy = gradients[0].to(inverse.scalar_type());
    auto const along = dy.mul(y).mean(at::IntArrayRef{-1}, /*keepdim=*/true);
    return {dy.sub(y.mul(along)).mul_(inverse).to(gradients[0].scalar_type())};
  }
};

}  // namespace detail

/// RMSNorm with a gain per channel, for rows [n, channels].
class norm {
public:
  norm(initializer const& init, char const* name) : gain_(init.ones(name, init.config().hidden)) {}

  at::Tensor operator()(at::Tensor const& x) {
    return stretto::torch::scale(detail::unit_rows_function::apply(x), gain_);
  }
  template <class F> void for_each_parameter(F&& f) { f(model_parameter{&gain_}); }

private:
  stretto::torch::parameter gain_;
};

}  // namespace train_moe
