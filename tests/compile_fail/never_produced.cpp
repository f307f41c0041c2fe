// expect: stretto\[E16\]: a block reads a value that no phase before it and no block of the model writes
// expect: us::Misspelt
// expect: us::resldual
// expect: us::MisspeltCombine
#include "layer.hpp"

namespace us {
struct resldual : stretto::value {};
struct MisspeltCombine : Whole<stretto::combine> {
#ifdef STRETTO_COMPILE_FAIL
  using reads = stretto::values<expert_out, resldual, routing>;
#else
  using reads = stretto::values<expert_out, residual, routing>;
#endif
  using writes = stretto::values<hidden>;
};
struct Misspelt : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Experts,
                                 stretto::Detach, MisspeltCombine> {};
struct Step : stretto::Schedule<Misspelt, stretto::TwoStream1F1B> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
// public bug: megatron-20
