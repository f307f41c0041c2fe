// expect: stretto\[E25\]: a phase reads an objective
// expect: us::Scored
// expect: us::score
// expect: us::Gathering
#include "layer.hpp"

namespace us {
struct score : stretto::objective {};
struct measure : stretto::value {};
struct Scoring : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out, score, measure>;
};
struct Gathering : Whole<stretto::combine> {
#ifdef STRETTO_COMPILE_FAIL
  using reads = stretto::values<expert_out, residual, score>;
#else
  using reads = stretto::values<expert_out, residual, measure>;
#endif
  using writes = stretto::values<hidden>;
};
struct Scored : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Scoring,
                               stretto::Detach, Gathering> {};
struct Step : stretto::Schedule<Scored, stretto::TwoStream1F1B> {};
} // namespace us

template struct stretto::proof<us::Step>;
