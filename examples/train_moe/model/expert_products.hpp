#pragma once

#include "swiglu.hpp"

#include <stretto/adapters/torch/expert_linear.hpp>

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace train_moe {

/// The products of experts on a device: `stretto::torch::expert_linear` of x, and that of `swiglu(x)` for rows that are weighed
/// later, see `after_swiglu_of_weighed`.
struct expert_linears {
  at::Tensor (*plain)(at::Tensor const& x, std::vector<std::int64_t> rows, stretto::torch::parameter& weight);
  at::Tensor (*after_swiglu)(at::Tensor const& x, at::Tensor const& log_weights,
                             std::vector<std::int64_t> rows, stretto::torch::parameter& weight);
};

/// By the operation that `op_for` makes for the rows of each expert.
template <auto op_for> constexpr expert_linears expert_linears_by() {
  return {[](at::Tensor const& x, std::vector<std::int64_t> rows, stretto::torch::parameter& weight) {
            return stretto::torch::expert_linear(x, op_for(std::move(rows)), weight);
          },
          [](at::Tensor const& x, at::Tensor const& log_weights, std::vector<std::int64_t> rows,
             stretto::torch::parameter& weight) {
            using op = decltype(op_for(std::move(rows)));
            return stretto::torch::apply_weighted(after_swiglu_of_weighed<op>{{op_for(std::move(rows))}}, x,
                                                  log_weights, weight);
          }};
}

inline stretto::torch::expert_linear_op expert_op_of_torch(std::vector<std::int64_t> rows) {
  return {std::move(rows)};
}
inline constexpr expert_linears expert_linears_of_torch = expert_linears_by<expert_op_of_torch>();

} // namespace train_moe
