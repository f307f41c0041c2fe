// expect: stretto\[E06\]: a pass of a node runs twice
// expect: \bTwice\b
// expect: pass_of<.*forward.*Dispatch
#include "layer.hpp"

namespace us {
struct Twice {
  static constexpr void pair(stretto::pair_builder& p) {
    using namespace stretto;
    p.compute(p.f.forward(attn));
    p.comm(p.f.forward(dispatch));
#ifdef STRETTO_COMPILE_FAIL
    p.comm(p.f.forward(dispatch));
#endif
    p.compute(p.f.forward(mlp), p.f.forward(combine));
    p.compute(p.b.backward(combine), p.b.backward(mlp), p.b.backward(dispatch), p.b.backward(attn));
  }
};
struct Step : stretto::Schedule<Layer, Twice> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
