#pragma once

#include "parameters.hpp"

#include <stretto/adapters/torch/rms_norm.hpp>

#include <ATen/ATen.h>

namespace train_moe {

/// Rows [n, channels] that a norm made, and what it made them from. That is kept anyway, for the norm's own gradient, so that
/// products of the rows make them once more in backward instead of keeping them too.
struct normed_rows {
  at::Tensor rows;
  at::Tensor from;
  stretto::torch::parameter const* gain;

  at::Tensor made_again() const { return stretto::torch::rms_norm_op{}.output(from, gain->data()); }
};

/// RMSNorm with a gain per channel, for rows [n, channels].
class norm {
public:
  norm(initializer const& init, char const* name) : gain_(init.ones(name, init.config().hidden)) {}

  normed_rows operator()(at::Tensor const& x) {
    return {stretto::torch::rms_norm(x, gain_), x.detach(), &gain_};
  }
  template <class Act> void for_each_parameter(Act&& f) { f(model_parameter{&gain_}); }

private:
  stretto::torch::parameter gain_;
};

} // namespace train_moe
