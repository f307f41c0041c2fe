// expect: stretto\[E35\]: a block reads metadata that no phase of it wrote before
// expect: us::Dispatch, us::routing>
#include "layer.hpp"

namespace us {
struct Router : Whole<stretto::attn> {
  using reads = stretto::values<hidden>;
#ifdef STRETTO_COMPILE_FAIL
  using writes = stretto::values<tokens, residual>;
#else
  using writes = stretto::values<tokens, residual, routing>;
#endif
};
struct Unrouted
    : stretto::Block<Router, stretto::Detach, Dispatch, stretto::Detach, Experts, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Unrouted, stretto::TwoStream1F1B> {};
} // namespace us

template struct stretto::proof<us::Step>;
