// expect: stretto\[E04\]: a weight gradient runs before the input gradient of its node
// expect: \bEager\b
// expect: op_at<.*backward_weight.*Experts
// expect: what_backward_input_keeps_for_weight_of<us::Experts>
#include "layer.hpp"

namespace us {
struct Eager {
  static constexpr void pair(stretto::pair_builder& p) {
    using namespace stretto;
    p.compute(p.f.forward(attn), p.f.forward(dispatch), p.f.forward(mlp), p.f.forward(combine));
    p.comm(p.b.backward(combine));
#ifdef STRETTO_COMPILE_FAIL
    p.compute(p.b.weight(mlp), p.b.input(mlp));
#else
    p.compute(p.b.input(mlp), p.b.weight(mlp));
#endif
    p.comm(p.b.backward(dispatch));
    p.compute(p.b.input(attn), p.b.weight(attn));
  }
};
struct Step : stretto::Schedule<Layer, Eager, stretto::SplitDW> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
