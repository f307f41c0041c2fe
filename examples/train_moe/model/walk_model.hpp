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
template <class Model, int... Types> struct walk_state<Model, std::integer_sequence<int, Types...>> {
  std::tuple<std::deque<stretto::slot<Model, Types, stretto::torch::tensors>>...> slots;
};

namespace detail {

template <class Model, class Block, int Type = 0> constexpr int number_of_type() {
  if constexpr (std::is_same_v<Block, typename Model::template block<Type>>)
    return Type;
  else
    return number_of_type<Model, Block, Type + 1>();
}
template <class Block> Block block_of(stretto::layer<Block> const&);

} // namespace detail

/// Runs the layers of one chunk forward from what the chunk before handed on. Returns what this one hands on, or the loss
/// of the microbatch if it has the head: a root, in the graph if gradients are enabled on this thread.
template <class Comm>
at::Tensor walk_chunk(rank_model<Comm>& model, walk_state<MoeModel<Comm>>& state, at::Tensor const& input,
                      int chunk, int microbatch) {
  using types = MoeModel<Comm>;
  static_assert(stretto::chain_of<types>::value.count == 1, "layers hand on one value");
  stretto::boundary<at::Tensor> between;
  between.value[0] = &input;
  at::Tensor result;
  model.layers().for_each([&](auto& layer, int number) {
    if (number < model.layers().first(chunk) || number >= model.layers().first(chunk + 1)) return;
    using block = decltype(detail::block_of(layer));
    constexpr int k = detail::number_of_type<types, block>();
    auto& slot = std::get<k>(state.slots).emplace_back();
    for (int c = 0; c < stretto::max_carried; ++c) slot.value[c] = between.value[c];
    stretto::walk_forward<types, k>(layer, slot, between, number, microbatch);
    if constexpr (std::is_same_v<block, HeadLayer>) result = slot.root[0];
  });
  return result.defined() ? result : *between.value[0];
}

/// The same for a rank that has the whole model in one chunk.
template <class Comm>
at::Tensor walk_model(rank_model<Comm>& model, walk_state<MoeModel<Comm>>& state, int microbatch) {
  return walk_chunk(model, state, {}, 0, microbatch);
}

} // namespace train_moe
