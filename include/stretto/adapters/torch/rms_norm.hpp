#pragma once

#include <stretto/adapters/torch/weighted.hpp>

#include <ATen/ATen.h>

#include <array>
#include <tuple>

namespace stretto {
inline namespace v0 {
namespace torch {

/// Computes in float, in double for doubles, and rounds once. On a GPU each of the three is one kernel.
struct rms_norm_op {
  double epsilon = 1e-6;
  mutable at::Tensor inverse{}; ///< 1 / sqrt(mean(x^2) + epsilon) of each row, as `output` found it

  at::Tensor output(at::Tensor const& x, at::Tensor const& gain) const {
    if (x.is_cuda()) {
      auto made = at::_fused_rms_norm(x, gain.sizes(), gain, epsilon);
      inverse = std::get<1>(made);
      return std::get<0>(made);
    }
    auto const wide = widened(x);
    auto const length = at::linalg_vector_norm(wide, 2, at::IntArrayRef{-1}, /*keepdim=*/true);
    inverse = length.square_().div_(static_cast<double>(x.size(-1))).add_(epsilon).rsqrt_();
    return wide.mul(inverse).mul_(gain).to(x.scalar_type());
  }
  /// With u = x * inverse and g = dy * gain: `dx = (g - u mean(g u)) * inverse`.
  at::Tensor input_gradient(at::Tensor const& x, at::Tensor const& dy, at::Tensor const& gain) const {
    if (x.is_cuda()) return std::get<0>(gradients(x, dy, gain, {true, false}));
    auto const unit = widened(x).mul_(inverse);
    auto const g = widened(dy).mul_(gain);
    auto const along = g.mul(unit).mean(at::IntArrayRef{-1}, /*keepdim=*/true);
    return g.sub(unit.mul_(along)).mul_(inverse).to(x.scalar_type());
  }
  at::Tensor weight_gradient(at::Tensor const& x, at::Tensor const& dy, at::Tensor const& gain) const {
    if (x.is_cuda()) return std::get<1>(gradients(x, dy, gain, {false, true}));
    return widened(x).mul_(inverse).mul_(dy).sum(0).to(gain.scalar_type());
  }

private:
  /// A copy always.
  static at::Tensor widened(at::Tensor const& x) {
    return x.to(x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat, /*non_blocking=*/false,
                /*copy=*/true);
  }
  std::tuple<at::Tensor, at::Tensor> gradients(at::Tensor const& x, at::Tensor const& dy,
                                               at::Tensor const& gain, std::array<bool, 2> wanted) const {
    return at::_fused_rms_norm_backward(dy, x, gain.sizes(), inverse, gain, wanted);
  }
};

/// RMSNorm (arXiv 1910.07467) of rows `x` [n, channels] with a gain per channel, a weight [channels].
inline at::Tensor rms_norm(at::Tensor const& x, parameter& gain) {
  return apply_weighted(rms_norm_op{}, x, gain);
}

} // namespace torch
} // namespace v0
} // namespace stretto
