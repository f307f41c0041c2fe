#include "optimizer.hpp"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace train_moe {
namespace {

constexpr double beta_mean = 0.9;
constexpr double beta_square = 0.95;
constexpr double epsilon = 1e-8;
constexpr double matrix_decay = 0.1;

} // namespace

adam_w::adam_w(std::vector<model_parameter> const& parameters) {
  for (auto const& each : parameters) {
    if (!each.weight->trainable()) continue;
    auto const data = each.weight->data();
    auto const& gradient = each.weight->main_grad();
    // Gains of norms are not pulled towards zero.
    states_.push_back({each.weight, data.to(gradient.scalar_type()), at::zeros_like(gradient),
                       at::zeros_like(gradient), data.dim() > 1 ? matrix_decay : 0.0});
  }
}

void adam_w::step(double learning_rate, double gradient_scale) {
  at::NoGradGuard const no_graph;
  ++steps_;
  auto const mean_correction = 1 - std::pow(beta_mean, steps_);
  auto const square_correction = 1 - std::pow(beta_square, steps_);
  for (auto& each : states_) {
    auto const gradient = each.weight->main_grad().mul(gradient_scale);
    each.mean.mul_(beta_mean).add_(gradient, 1 - beta_mean);
    each.square.mul_(beta_square).addcmul_(gradient, gradient, 1 - beta_square);
    auto const length = each.square.div(square_correction).sqrt_().add_(epsilon);
    each.master.mul_(1 - learning_rate * each.decay)
        .addcdiv_(each.mean, length, -learning_rate / mean_correction);
    // The same storage where no rounding lies between.
    auto const data = each.weight->data();
    if (!data.is_alias_of(each.master)) data.copy_(each.master);
  }
}

double learning_rate_at(int step, int steps, double highest) {
  auto const warm_up = std::max(1, steps / 10);
  if (step < warm_up) return highest * (step + 1) / warm_up;
  auto const progress = static_cast<double>(step - warm_up) / std::max(1, steps - warm_up);
  return highest * (0.1 + 0.9 * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

} // namespace train_moe
