#pragma once

#include "../../examples/plan/layer_types.hpp"

/// The layers of the mutated programs: MoE with and without a shared expert, dense with and without a cut, and the two ends.
/// Some phases hand on the storage of what they read.
namespace sim_test {

namespace plan_types = plan_program;
using stretto::Block, stretto::Detach, stretto::Phase, stretto::values;

struct shared_out : stretto::value {};

/// An exchange among one rank: what comes in goes on.
struct SharedDispatch : plan_types::Dispatch {
  using aliases = values<plan_types::tokens, plan_types::expert_in>;
};
/// The shared expert reads the tokens on the compute lane, while dispatch reads them on the other.
struct SharedExperts : Phase<stretto::mlp> {
  using reads = values<plan_types::expert_in, plan_types::tokens>;
  using writes = values<plan_types::expert_out, shared_out>;
  using saves = values<plan_types::expert_in, plan_types::tokens>;
};
struct SharedCombine : Phase<stretto::combine> {
  using reads = values<plan_types::expert_out, shared_out, plan_types::probs, plan_types::residual,
                       plan_types::routing>;
  using writes = values<plan_types::hidden>;
  using saves = values<plan_types::expert_out, plan_types::probs>;
};

struct MoeLayer : plan_types::MoeLayer {};
struct SharedLayer
    : Block<plan_types::Attention, Detach, SharedDispatch, Detach, SharedExperts, Detach, SharedCombine> {};
/// The residual is what comes from the layer before, or from another rank.
struct DenseAttention : plan_types::DenseAttention {
  using aliases = values<plan_types::hidden, plan_types::residual>;
};
struct DenseLayer : Block<DenseAttention, Detach, plan_types::DenseMlp> {};
/// Both phases in one node, which runs forward again in backward.
struct FusedLayer : Block<stretto::Recompute<DenseAttention, plan_types::DenseMlp>> {};
struct EmbeddingLayer : plan_types::EmbeddingLayer {};
struct HeadLayer : plan_types::HeadLayer {};

struct Model : stretto::Blocks<MoeLayer, SharedLayer, DenseLayer, FusedLayer, EmbeddingLayer, HeadLayer> {};
enum block_number { moe, shared, dense, fused, embedding, head };

} // namespace sim_test
