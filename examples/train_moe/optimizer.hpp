#pragma once

#include "model/parameters.hpp"

#include <ATen/ATen.h>

#include <vector>

namespace train_moe {

/// AdamW (arXiv 1711.05101) on the parameters' accumulated gradients. State is float (double for a double model); a
/// bf16 parameter has a float master copy here, of which it is the rounding.
class adam_w {
public:
  explicit adam_w(std::vector<model_parameter> const& parameters);

  /// One update with the gradients times `gradient_scale`.
  void step(double learning_rate, double gradient_scale);

private:
  struct state {
    stretto::torch::parameter* weight;
    at::Tensor master, mean, square;
    double decay;
  };
  std::vector<state> states_;
  int steps_ = 0;
};

/// Linear warm-up over the first tenth of `steps`, then half a cosine down to a tenth of `highest`.
double learning_rate_at(int step, int steps, double highest);

} // namespace train_moe
