// expect: stretto\[E39\]: a phase aliases what is no pair of a value that it reads and a value that it writes
// expect: us::Exchange
// expect: us::residual
#include "layer.hpp"

namespace us {
/// Among one rank what comes in goes on.
struct Exchange : Whole<stretto::dispatch> {
  using reads = stretto::values<tokens, routing>;
  using writes = stretto::values<expert_in>;
#ifdef STRETTO_COMPILE_FAIL
  using aliases = stretto::values<residual, expert_in>;
#else
  using aliases = stretto::values<tokens, expert_in>;
#endif
};
struct Made : stretto::Block<Attention, stretto::Detach, Exchange, stretto::Detach, Experts, stretto::Detach,
                             Combine> {};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

template struct stretto::proof<us::Step>;
