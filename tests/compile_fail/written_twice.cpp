// expect: stretto\[E14\]: two phases of a block write the same value
// expect: us::Rewritten
// expect: us::residual
// expect: us::Attention
// expect: us::ResidualAgain
#include "layer.hpp"

namespace us {
struct ResidualAgain : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
#ifdef STRETTO_COMPILE_FAIL
  using writes = stretto::values<expert_out, residual>;
#else
  using writes = stretto::values<expert_out>;
#endif
};
struct Rewritten : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, ResidualAgain,
                                  stretto::Detach, Combine> {};
struct Step : stretto::Schedule<Rewritten, stretto::TwoStream1F1B> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
