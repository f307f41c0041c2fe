#pragma once

#include "attend.hpp"
#include "norm.hpp"
#include "product.hpp"
#include "rope.hpp"

#include <ATen/ATen.h>

#include <cmath>

namespace train_moe {

/// Causal self-attention with rotary positions on normed input, added to the input: [tokens, hidden] to the same.
class attention {
public:
  attention(initializer const& init, double residual_deviation)
      : heads_(init.config().heads), sequence_(init.config().sequence), norm_(init, "attention.norm"),
        qkv_(init.normal("attention.qkv", {init.config().hidden, 3 * init.config().hidden},
                         1.0 / std::sqrt(init.config().hidden))),
        out_(init.normal("attention.out", {init.config().hidden, init.config().hidden}, residual_deviation)),
        rotation_(
            init.config().sequence, init.config().hidden / init.config().heads,
            at::TensorOptions(torch_device(init.config().device)).dtype(torch_type(init.config().type))) {}

  at::Tensor operator()(at::Tensor const& x) {
    auto const head = x.size(1) / heads_;
    auto const qkv = product(norm_(x), qkv_).view({-1, sequence_, 3, heads_, head});
    auto const parts = rotate(qkv, rotation_);
    auto const mixed = attend(parts[0].transpose(1, 2), parts[1].transpose(1, 2), parts[2].transpose(1, 2));
    return x + product(mixed.transpose(1, 2).reshape(x.sizes()), out_);
  }
  template <class Act> void for_each_parameter(Act&& f) {
    norm_.for_each_parameter(f);
    f(model_parameter{&qkv_});
    f(model_parameter{&out_});
  }

private:
  std::int64_t heads_;
  std::int64_t sequence_;
  norm norm_;
  stretto::torch::parameter qkv_;
  stretto::torch::parameter out_;
  rotation rotation_;
};

} // namespace train_moe
