// expect: stretto\[E01\]: an op reads a value that no earlier op writes
// expect: \bHasty\b
// expect: op_at<.*backward_input.*Experts
// expect: the_gradient_of<us::expert_out>
#include "layer.hpp"

namespace us {
struct Hasty {
  static constexpr void pair(stretto::pair_builder& p) {
    using namespace stretto;
    p.compute(p.f.forward(attn));
    p.comm(p.f.forward(dispatch));
#ifdef STRETTO_COMPILE_FAIL
    p.compute(p.b.input(mlp));
    p.comm(p.b.backward(combine));
#else
    p.comm(p.b.backward(combine));
    p.compute(p.b.input(mlp));
#endif
    p.comm(p.b.backward(dispatch));
    p.compute(p.b.weight(mlp), p.f.forward(mlp));
    p.comm(p.f.forward(combine));
    p.compute(p.b.input(attn), p.b.weight(attn));
  }
};
struct Step : stretto::Schedule<Layer, Hasty, stretto::SplitDW> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
