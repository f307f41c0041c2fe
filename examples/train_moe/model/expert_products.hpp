#pragma once

#include <stretto/adapters/torch/expert_linear.hpp>

#include <ATen/ATen.h>

#include <cstdint>
#include <utility>
#include <vector>

namespace train_moe {

/// `stretto::torch::expert_linear` for rows of torch, or what does the same on a device.
using expert_linear_function = at::Tensor (*)(at::Tensor const& x, std::vector<std::int64_t> rows,
                                              stretto::torch::parameter& weight);

inline at::Tensor expert_linear_of_torch(at::Tensor const& x, std::vector<std::int64_t> rows,
                                         stretto::torch::parameter& weight) {
  return stretto::torch::expert_linear(x, std::move(rows), weight);
}

} // namespace train_moe
