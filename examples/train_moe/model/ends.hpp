#pragma once

#include "norm.hpp"
#include "product.hpp"
#include "step_data.hpp"
#include "values.hpp"

#include <stretto/adapters/torch/embedding.hpp>
#include <stretto/block.hpp>

#include <ATen/ATen.h>

#include <cmath>
#include <cstddef>

namespace train_moe {

/// The first layer: bytes to vectors.
class Embedding : public stretto::Phase<stretto::attn> {
public:
  using writes = stretto::values<hidden>;
  using saves = stretto::values<>;

  Embedding(initializer const& init, step_data const& step)
      : step_(&step), table_(init.normal("table", {model_config::vocabulary, init.config().hidden}, 1.0)) {}

  void forward(auto& io) {
    auto const& batch = step_->batches[static_cast<std::size_t>(io.microbatch())];
    io[hidden{}] = stretto::torch::embedding(batch.ids, table_);
  }
  template <class Act> void for_each_parameter(Act&& f) { f(model_parameter{&table_}); }

private:
  step_data const* step_;
  stretto::torch::parameter table_;
};

/// The last layer: vectors to the cross-entropy of the next byte.
class Head : public stretto::Phase<stretto::mlp> {
public:
  using reads = stretto::values<hidden>;
  using writes = stretto::values<loss>;
  using saves = stretto::values<hidden>;

  Head(initializer const& init, step_data& step)
      : step_(&step), norm_(init, "norm"),
        out_(init.normal("out", {init.config().hidden, model_config::vocabulary},
                         1.0 / std::sqrt(init.config().hidden))) {}

  void forward(auto& io) {
    auto const m = static_cast<std::size_t>(io.microbatch());
    auto const logits = product(norm_(io[hidden{}]), out_);
    auto const wide = logits.to(wide_type(logits.scalar_type()));
    auto const mean = at::cross_entropy_loss(wide, step_->batches[m].targets);
    step_->losses[m] = mean.detach();
    io[loss{}] = mean * step_->share;
  }
  template <class Act> void for_each_parameter(Act&& f) {
    norm_.for_each_parameter(f);
    f(model_parameter{&out_});
  }

private:
  step_data* step_;
  norm norm_;
  stretto::torch::parameter out_;
};

struct EmbeddingLayer : stretto::Block<Embedding> {};
struct HeadLayer : stretto::Block<Head> {};

} // namespace train_moe
