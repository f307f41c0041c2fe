#pragma once

#include "attention.hpp"
#include "swiglu.hpp"
#include "values.hpp"

#include <stretto/block.hpp>

#include <ATen/ATen.h>

namespace train_moe {

class DenseAttention : public stretto::Phase<stretto::attn> {
public:
  using reads = stretto::values<hidden>;
  using writes = stretto::values<residual>;
  using saves = stretto::values<hidden>;

  DenseAttention(initializer const& init, double residual_deviation) : attention_(init, residual_deviation) {}

  void forward(auto& io) { io[residual{}] = attention_(io[hidden{}]); }
  template <class Act> void for_each_parameter(Act&& f) { attention_.for_each_parameter(f); }

private:
  attention attention_;
};

class DenseFeedForward : public stretto::Phase<stretto::mlp> {
public:
  using reads = stretto::values<residual>;
  using writes = stretto::values<hidden>;
  using saves = stretto::values<residual>;

  DenseFeedForward(initializer const& init, double residual_deviation)
      : norm_(init, "dense.norm"),
        inner_(init, "dense.up", "dense.down",
               (init.config().top_k + init.config().shared) * init.config().ffn, residual_deviation) {}

  void forward(auto& io) {
    auto const& x = io[residual{}];
    io[hidden{}] = x + inner_(norm_(x));
  }
  template <class Act> void for_each_parameter(Act&& f) {
    norm_.for_each_parameter(f);
    inner_.for_each_parameter(f);
  }

private:
  norm norm_;
  feed_forward inner_;
};

struct DenseLayer : stretto::Block<DenseAttention, stretto::Detach, DenseFeedForward> {};

} // namespace train_moe
