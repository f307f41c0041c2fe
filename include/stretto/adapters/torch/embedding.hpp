#pragma once

#include <stretto/adapters/torch/weighted.hpp>

#include <ATen/ATen.h>

namespace stretto {
inline namespace v0 {
namespace torch {

/// Picks rows of a weight [entries, channels] by their numbers: what `embedding` is made of.
struct embedding_op {
  at::Tensor output(at::Tensor const& ids, at::Tensor const& table) const {
    return table.index_select(0, ids);
  }
  at::Tensor input_gradient(at::Tensor const&, at::Tensor const&) const { return {}; }
  /// Adds in the order of the rows as long as the thread has one intra-op thread.
  at::Tensor weight_gradient(at::Tensor const& ids, at::Tensor const& dy, at::Tensor const& table) const {
    return at::embedding_dense_backward(dy, ids, table.size(0), /*padding_idx=*/-1,
                                        /*scale_grad_by_freq=*/false);
  }
};

/// The rows of a weight [entries, channels] that `ids` [n] (64-bit integers) names.
inline at::Tensor embedding(at::Tensor const& ids, parameter& table) {
  return apply_weighted(embedding_op{}, ids, table);
}

} // namespace torch
} // namespace v0
} // namespace stretto
