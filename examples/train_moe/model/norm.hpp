#pragma once

#include "parameters.hpp"

#include <stretto/adapters/torch/rms_norm.hpp>

#include <ATen/ATen.h>

namespace train_moe {

/// RMSNorm with a gain per channel, for rows [n, channels].
class norm {
public:
  norm(initializer const& init, char const* name) : gain_(init.ones(name, init.config().hidden)) {}

  at::Tensor operator()(at::Tensor const& x) { return stretto::torch::rms_norm(x, gain_); }
  template <class Act> void for_each_parameter(Act&& f) { f(model_parameter{&gain_}); }

private:
  stretto::torch::parameter gain_;
};

} // namespace train_moe
