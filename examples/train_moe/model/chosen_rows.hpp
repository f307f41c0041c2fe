#pragma once

#include "fused.hpp"
#include "parameters.hpp"

#include <stretto/adapters/torch/rows.hpp>

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cstdint>
#include <optional>

namespace train_moe {
namespace detail {

/// Of rows that `fused_for` has kernels for.
struct spread_rows_function : torch::autograd::Function<spread_rows_function> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, at::Tensor const& x,
                            at::Tensor const& order, at::Tensor const& place, std::int64_t choices) {
    saved->save_for_backward({place});
    saved->saved_data["choices"] = choices;
    return x.index_select(0, order.floor_divide(choices));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    auto const place = saved->get_saved_variables()[0];
    auto const choices = saved->saved_data["choices"].toInt();
    auto const& dy = gradients[0];
    return {fused_for(dy, dy.size(1))->sum(dy, place, choices), {}, {}, {}};
  }
};

struct weigh_rows_function : torch::autograd::Function<weigh_rows_function> {
  static at::Tensor by_token(at::Tensor const& rows, at::Tensor const& place, at::Tensor const& weights) {
    auto const placed = place.defined() ? rows.index_select(0, place) : rows;
    return placed.view({weights.size(0), weights.size(1), rows.size(1)});
  }
  static at::Tensor forward(torch::autograd::AutogradContext* saved, at::Tensor const& x,
                            at::Tensor const& rows, at::Tensor const& weights,
                            std::optional<at::Tensor> const& order,
                            std::optional<at::Tensor> const& inverse) {
    auto const place = inverse.value_or(at::Tensor());
    saved->save_for_backward({weights, order.value_or(at::Tensor()), place});
    if (auto const* fused = fused_for(rows, rows.size(1))) return fused->weigh(x, rows, weights, place);
    return x + by_token(rows, place, weights).mul(weights.unsqueeze(-1)).sum(1).to(x.scalar_type());
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    auto const variables = saved->get_saved_variables();
    auto const &weights = variables[0], &order = variables[1], &place = variables[2];
    auto const& dy = gradients[0];
    if (auto const* fused = fused_for(dy, dy.size(1)))
      return {dy, fused->weigh_backward(dy, weights, place), {}, {}, {}};
    auto const by_choice = dy.to(weights.scalar_type()).unsqueeze(1).mul(weights.unsqueeze(-1));
    auto const of_rows = by_choice.to(dy.scalar_type()).view({weights.numel(), dy.size(1)});
    return {dy, order.defined() ? of_rows.index_select(0, order) : of_rows, {}, {}, {}};
  }
};

} // namespace detail

/// Rows by expert, as `permute_rows` with so many copies: row i is token `order[i] / choices` of `x`, `place` the inverse of
/// `order`.
inline at::Tensor spread_rows(at::Tensor const& x, at::Tensor const& order, at::Tensor const& place,
                              std::int64_t choices) {
  if (fused_for(x, x.size(1))) return detail::spread_rows_function::apply(x, order, place, choices);
  return stretto::torch::permute_rows(x, order, place, choices);
}

/// `x` [tokens, channels] + the sum over the choices of each token of `weights` [tokens, choices] times row
/// `place[t * choices + c]` of `rows`, `order` the inverse of `place`. Without both, rows lie by token. `rows` and `x` are of one
/// type. Weights get no gradient, for which all rows would have to be kept.
inline at::Tensor weigh_rows(at::Tensor const& x, at::Tensor const& rows, at::Tensor const& weights,
                             std::optional<at::Tensor> const& order = {},
                             std::optional<at::Tensor> const& place = {}) {
  return detail::weigh_rows_function::apply(x, rows, weights, order, place);
}

} // namespace train_moe
