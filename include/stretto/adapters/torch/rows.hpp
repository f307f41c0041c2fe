#pragma once

#include <stretto/detail/cxx20.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>

namespace stretto {
inline namespace v0 {
namespace torch {
namespace detail {

struct permute_rows_function : ::torch::autograd::Function<permute_rows_function> {
  static at::Tensor forward(::torch::autograd::AutogradContext* saved, at::Tensor const& x,
                            at::Tensor const& order, at::Tensor const& inverse, std::int64_t copies) {
    saved->save_for_backward({inverse});
    saved->saved_data["copies"] = copies;
    return x.index_select(0, copies == 1 ? order : order.floor_divide(copies));
  }
  static ::torch::autograd::variable_list backward(::torch::autograd::AutogradContext* saved,
                                                   ::torch::autograd::variable_list output_gradients) {
    auto const inverse = saved->get_saved_variables()[0];
    auto const copies = saved->saved_data["copies"].toInt();
    auto gradient = output_gradients[0].index_select(0, inverse);
    if (copies != 1) gradient = gradient.view({gradient.size(0) / copies, copies, gradient.size(1)}).sum(1);
    return {gradient, {}, {}, {}};
  }
};

} // namespace detail

/// Rows in another order, each taken `copies` times: result row i is row `order[i] / copies` of `x` [n, channels].
/// `order` is a permutation of the n * copies copies (copy c of row r has number r * copies + c) and `inverse` its
/// inverse, both 64-bit integers. The gradient gathers through `inverse` and sums the copies of a row in their order,
/// with no scattered addition, so that it is the same on every run and device.
inline at::Tensor permute_rows(at::Tensor const& x, at::Tensor const& order, at::Tensor const& inverse,
                               std::int64_t copies = 1) {
  return detail::permute_rows_function::apply(x, order, inverse, copies);
}

} // namespace torch
} // namespace v0
} // namespace stretto
