// expect: stretto\[E05\]: a pass of a node never runs
// expect: \bShort\b
// expect: pass_of<.*backward_weight.*Experts
#include "layer.hpp"

namespace us {
struct Short {
  static constexpr void pair(stretto::pair_builder& p) {
    using namespace stretto;
    p.compute(p.f.forward(attn), p.f.forward(dispatch), p.f.forward(mlp), p.f.forward(combine));
    p.comm(p.b.backward(combine));
    p.compute(p.b.input(mlp));
    p.comm(p.b.backward(dispatch));
#ifndef STRETTO_COMPILE_FAIL
    p.compute(p.b.weight(mlp));
#endif
    p.compute(p.b.input(attn), p.b.weight(attn));
  }
};
struct Step : stretto::Schedule<Layer, Short, stretto::SplitDW> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
