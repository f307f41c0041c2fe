// expect: stretto\[E16\]: a block reads a value that no phase before it and no block of the model writes
// expect: us::MisspeltDispatch, us::(resldual|shared)>
#include "layer.hpp"

namespace us {
struct resldual : stretto::value {};
#ifdef STRETTO_COMPILE_FAIL
using shared = resldual;
#else
using shared = residual;
#endif
struct MisspeltDispatch : Whole<stretto::dispatch> {
  using reads = stretto::values<tokens, shared, routing>;
  using writes = stretto::values<expert_in>;
};
struct MisspeltCombine : Whole<stretto::combine> {
  using reads = stretto::values<expert_out, shared, routing>;
  using writes = stretto::values<hidden>;
};
struct Misspelt : stretto::Block<Attention, stretto::Detach, MisspeltDispatch, stretto::Detach, Experts,
                                 stretto::Detach, MisspeltCombine> {};
struct Step : stretto::Schedule<Misspelt, stretto::TwoStream1F1B> {};
} // namespace us

template struct stretto::proof<us::Step>;
