#pragma once

#include "../hash.hpp"
#include "parameters.hpp"
#include "product.hpp"
#include "step_data.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace train_moe {
namespace detail {

/// Passes `x` on and adds `extra` to its gradient: how a loss that has no other use joins backward.
struct inject_function : torch::autograd::Function<inject_function> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, at::Tensor const& x,
                            at::Tensor const& extra) {
    saved->save_for_backward({extra});
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0] + saved->get_saved_variables()[0], {}};
  }
};

/// `instead` in forward, with the gradient for `x`.
struct replace_function : torch::autograd::Function<replace_function> {
  static at::Tensor forward(torch::autograd::AutogradContext*, at::Tensor const& /*x*/,
                            at::Tensor const& instead) {
    return instead.view_as(instead);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], {}};
  }
};

/// Where `ids` [rows, k] name one of `width` columns: [rows, k, width].
inline at::Tensor is_named(at::Tensor const& ids, std::int64_t width) {
  return ids.unsqueeze(-1).eq(at::arange(width, ids.options()));
}

/// Columns `ids` [rows, k] of each row of `x`, different ones. The gradient goes back by comparison: scattered additions
/// are in an order of chance on a GPU, or make the host wait.
struct pick_columns_function : torch::autograd::Function<pick_columns_function> {
  static at::Tensor forward(torch::autograd::AutogradContext* saved, at::Tensor const& x,
                            at::Tensor const& ids) {
    saved->save_for_backward({ids});
    saved->saved_data["width"] = x.size(1);
    return x.gather(1, ids);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* saved,
                                                 torch::autograd::variable_list gradients) {
    auto const named = is_named(saved->get_saved_variables()[0], saved->saved_data["width"].toInt());
    return {named.to(gradients[0].scalar_type()).mul_(gradients[0].unsqueeze(-1)).sum(1), {}};
  }
};

} // namespace detail

/// Which experts each token visits: [tokens, k] ids, 64-bit integers, best first.
struct choice {
  at::Tensor ids;
  at::Tensor weights; ///< without a gradient, which goes by their logarithms
  at::Tensor log_weights; ///< differentiable
};

/// Choices by microbatch, to be replayed: finite differences need the discrete choices of their base point.
struct choice_record {
  bool replay = false;
  std::vector<at::Tensor> ids;
};

/// Softmax over the experts, the `top_k` best, their weights renormalised for k > 1 (for k = 1 that would make every
/// weight 1 and leave the router without a gradient). With a forced balance, which is for benchmarks, random numbers take
/// the place of the logits, by layer and microbatch the same in every step and on every rank (so that --ep changes what is
/// learned): experts then have nearly as many rows each, and the router costs what it always costs.
class router {
public:
  router(initializer const& init, step_data& step, int layer)
      : config_(init.config()), step_(&step), layer_(layer),
        weight_(init.normal("router", {config_.hidden, config_.experts}, 1.0 / std::sqrt(config_.hidden))) {}

  choice operator()(normed_rows const& x, int microbatch) {
    auto logits = product(x, weight_);
    if (config_.forced_balance) logits = detail::replace_function::apply(logits, drawn(logits, microbatch));
    auto const type = wide_type(logits.scalar_type());
    auto const probabilities = logits.detach().softmax(-1, type);
    auto const ids = choose(probabilities, microbatch);
    auto const balanced = balance(logits.to(type), probabilities, ids, microbatch);
    using pick = detail::pick_columns_function;
    auto const weights = probabilities.gather(1, ids);
    // What is renormalised is the softmax of the chosen logits.
    if (config_.top_k == 1) return {ids, weights, pick::apply(balanced.log_softmax(-1), ids)};
    return {ids, weights / weights.sum(1, /*keepdim=*/true), pick::apply(balanced, ids).log_softmax(-1)};
  }

  void replay(choice_record* record) { record_ = record; }
  template <class Act> void for_each_parameter(Act&& f) { f(model_parameter{&weight_}); }

private:
  /// Like `logits`; the first step draws them.
  at::Tensor drawn(at::Tensor const& logits, int microbatch) {
    auto const m = static_cast<std::size_t>(microbatch);
    if (drawn_.size() <= m) drawn_.resize(m + 1);
    if (auto& kept = drawn_[m]; !kept.defined() || kept.sizes() != logits.sizes()) {
      auto const name = "routes " + std::to_string(layer_) + " " + std::to_string(microbatch);
      auto const wide = at::empty(logits.sizes(), at::kFloat)
                            .normal_(0.0, 1.0, at::detail::createCPUGenerator(hash_text(config_.seed, name)));
      kept = wide.to(logits.options());
    }
    return drawn_[m];
  }

  at::Tensor choose(at::Tensor const& probabilities, int microbatch) {
    auto const m = static_cast<std::size_t>(microbatch);
    if (record_ && record_->replay) return record_->ids[m];
    auto ids = std::get<1>(probabilities.topk(config_.top_k, 1));
    if (record_) {
      if (record_->ids.size() <= m) record_->ids.resize(m + 1);
      record_->ids[m] = ids;
    }
    return ids;
  }

  /// The load-balancing loss of each sequence, `sum over experts of f P` with f the expert's share of the choices times
  /// the number of experts and P its mean probability (arXiv 2412.19437, 2.1.2). By sequence, so that it does not
  /// depend on how sequences are spread over microbatches and ranks. f has no gradient; that of P is a constant.
  at::Tensor balance(at::Tensor const& logits, at::Tensor const& probabilities, at::Tensor const& ids,
                     int microbatch) {
    if (config_.auxiliary == 0) return logits;
    auto const experts = probabilities.size(1);
    auto const sequences = probabilities.size(0) / config_.sequence;
    auto const of_choice = static_cast<double>(experts) / (config_.sequence * config_.top_k);
    auto const share = detail::is_named(ids.view({sequences, -1}), experts)
                           .sum(1)
                           .to(probabilities.scalar_type())
                           .mul_(of_choice);

    auto const by_sequence = probabilities.view({sequences, config_.sequence, experts});
    auto const mean = by_sequence.mean(1);
    step_->auxiliary[static_cast<std::size_t>(layer_)][static_cast<std::size_t>(microbatch)] =
        share.mul(mean).sum().mul_(config_.auxiliary / static_cast<double>(sequences));

    auto const factor = config_.auxiliary * step_->share / static_cast<double>(probabilities.size(0));
    auto const of_probabilities =
        share.mul(factor).unsqueeze(1).expand_as(by_sequence).reshape(probabilities.sizes());
    auto const of_logits =
        at::_softmax_backward_data(of_probabilities, probabilities, -1, probabilities.scalar_type());
    return detail::inject_function::apply(logits, of_logits);
  }

  model_config const& config_;
  step_data* step_;
  int layer_;
  choice_record* record_ = nullptr;
  std::vector<at::Tensor> drawn_; ///< by microbatch
  stretto::torch::parameter weight_;
};

} // namespace train_moe
