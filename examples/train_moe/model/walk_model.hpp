#pragma once

#include "model.hpp"

#include <stretto/adapters/torch/tensors.hpp>
#include <stretto/walk.hpp>

#include <deque>
#include <tuple>
#include <utility>

namespace train_moe {

/// The state of every layer for one microbatch that is run forward as one graph, with nothing detached.
template <class Model, class Types = std::make_integer_sequence<int, Model::count>> struct walk_state;
template <class Model, int... K> struct walk_state<Model, std::integer_sequence<int, K...>> {
  std::tuple<std::deque<stretto::slot<Model, K, stretto::torch::tensors>>...> slots;
};

namespace detail {

template <class Model, class Block, int K = 0> constexpr int number_of_type() {
  if constexpr (std::is_same_v<Block, typename Model::template block<K>>) return K;
  else return number_of_type<Model, Block, K + 1>();
}
template <class Block> Block block_of(stretto::layer<Block> const&);

}  // namespace detail

/// Runs every layer forward; the loss of the microbatch is what the head wrote: its root, in the graph if gradients are
/// enabled on this thread.
template <class Comm>
at::Tensor walk_model(rank_model<Comm>& model, walk_state<MoeModel<Comm>>& state, int microbatch) {
  using types = MoeModel<Comm>;
  stretto::boundary<at::Tensor> between;
  at::Tensor result;
  model.layers().for_each([&](auto& layer, int number) {
    using block = decltype(detail::block_of(layer));
    constexpr int k = detail::number_of_type<types, block>();
    auto& slot = std::get<k>(state.slots).emplace_back();
    for (int c = 0; c < stretto::max_carried; ++c) slot.value[c] = between.value[c];
    stretto::walk_forward<types, k>(layer, slot, between, number, microbatch);
    if constexpr (std::is_same_v<block, HeadLayer>) result = slot.root[0];
  });
  return result;
}

}  // namespace train_moe
