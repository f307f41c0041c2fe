#pragma once

#include <stretto/block.hpp>

/// The layers that pictures and replays are made of: what their phases read and write, and no work.
namespace plan_program {

struct hidden : stretto::value {};
struct tokens : stretto::value {};
struct probs : stretto::value {};
struct residual : stretto::value {};
struct expert_in : stretto::value {};
struct expert_out : stretto::value {};
struct normed : stretto::value {};
struct loss : stretto::objective {};
struct routing : stretto::metadata {
  using type = int;
};

struct Embedding : stretto::Phase<stretto::attn> {
  using writes = stretto::values<hidden>;
  using saves = stretto::values<>;
};

struct DenseAttention : stretto::Phase<stretto::attn> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<normed, residual>;
  using saves = stretto::values<hidden>;
};
struct DenseMlp : stretto::Phase<stretto::mlp> {
  using reads = stretto::values<normed, residual>;
  using writes = stretto::values<hidden>;
  using saves = stretto::values<normed>;
};

struct Attention : stretto::Phase<stretto::attn> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<tokens, probs, residual, routing>;
  using saves = stretto::values<hidden, probs>;
};
struct Dispatch : stretto::Phase<stretto::dispatch> {
  using reads = stretto::values<tokens, routing>;
  using writes = stretto::values<expert_in>;
  using saves = stretto::values<>;
};
struct Experts : stretto::Phase<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
  using saves = stretto::values<expert_in>;
};
struct Combine : stretto::Phase<stretto::combine> {
  using reads = stretto::values<expert_out, probs, residual, routing>;
  using writes = stretto::values<hidden>;
  using saves = stretto::values<expert_out, probs>;
};

struct Head : stretto::Phase<stretto::mlp> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<loss>;
  using saves = stretto::values<hidden>;
};

/// The first layer of a model with its embedding inside, and the last one with head and loss.
struct FirstAttention : stretto::Phase<stretto::attn> {
  using writes = stretto::values<tokens, probs, residual, routing>;
  using saves = stretto::values<probs>;
};
struct LastCombine : stretto::Phase<stretto::combine> {
  using reads = stretto::values<expert_out, probs, residual, routing>;
  using writes = stretto::values<loss>;
  using saves = stretto::values<expert_out, probs>;
};

template <class Begin, class End>
using moe_block =
    stretto::Block<Begin, stretto::Detach, Dispatch, stretto::Detach, Experts, stretto::Detach, End>;

struct MoeLayer : moe_block<Attention, Combine> {};
struct FirstLayer : moe_block<FirstAttention, Combine> {};
struct LastLayer : moe_block<Attention, LastCombine> {};
struct DenseLayer : stretto::Block<DenseAttention, stretto::Detach, DenseMlp> {};
struct EmbeddingLayer : stretto::Block<Embedding> {};
struct HeadLayer : stretto::Block<Head> {};

/// Nothing but MoE layers, all alike to whoever counts and times them.
struct MoeModel : stretto::Blocks<MoeLayer, FirstLayer, LastLayer> {};

/// A model as one writes it: MoE and dense layers between an embedding and a head of their own.
struct MixedModel : stretto::Blocks<MoeLayer, DenseLayer, EmbeddingLayer, HeadLayer> {};

} // namespace plan_program
