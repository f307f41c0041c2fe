#pragma once

#include <stretto/program/builder.hpp>

namespace stretto {
inline namespace v0 {

/// Communication on a lane of its own, hidden behind the compute of the other microbatch: the forward of one microbatch
/// beside the backward of another, in the order of Megatron-LM's combined 1F1B and DeepSeek's DualPipe trace. With
/// `SplitDW` the experts' weight gradient runs while the backward dispatch is on its way, attention's at the end.
struct TwoStream1F1B {
  static constexpr void pair(pair_builder& p) {
    p.compute(p.b.input(mtp), p.b.weight(mtp));
    p.comm(p.b.backward(combine));
    p.compute(p.f.forward(attn));
    p.compute(p.b.input(mlp));
    p.comm(p.f.forward(dispatch));
    p.comm(p.b.backward(dispatch));
    p.compute(p.b.weight(mlp));
    p.compute(p.f.forward(mlp));
    p.comm(p.f.forward(combine));
    p.compute(p.b.input(attn));
    p.compute(p.f.forward(mtp));
    p.compute(p.b.weight(attn));
  }
};

} // namespace v0
} // namespace stretto
