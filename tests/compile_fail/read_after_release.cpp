// expect: stretto\[E03\]: an op reads a value that was given back
// expect: \bForgetful\b
// expect: op_at<.*backward.*Count
// expect: the_value<us::routing>
// expect: op_at<.*backward.*Gate
#include "layer.hpp"

namespace us {
struct counts : stretto::value {};
struct Gate : Whole<stretto::attn> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<tokens, routing>;
};
struct Count : Whole<stretto::dispatch> {
  using reads = stretto::values<routing>;
  using writes = stretto::values<counts>;
};
struct Sum : Whole<stretto::mlp> {
  using reads = stretto::values<tokens, counts>;
  using writes = stretto::values<hidden>;
};
struct Counted : stretto::Block<Gate, stretto::Detach, Count, stretto::Detach, Sum> {};

/// Nothing but the routing ties the two backwards at the end together.
struct Forgetful {
  static constexpr void pair(stretto::pair_builder& p) {
    using namespace stretto;
    p.compute(p.f.forward(attn), p.f.forward(dispatch), p.f.forward(mlp), p.b.backward(mlp));
#ifdef STRETTO_COMPILE_FAIL
    p.compute(p.b.backward(attn), p.b.backward(dispatch));
#else
    p.compute(p.b.backward(dispatch), p.b.backward(attn));
#endif
  }
};
struct Step : stretto::Schedule<Counted, Forgetful> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
