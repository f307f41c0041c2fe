// expect: stretto\[E15\]: two nodes of a block read the same value of the layer before
// expect: us::ReadTwice
// expect: us::hidden
// expect: us::Attention
// expect: us::LateReader
#include "layer.hpp"

namespace us {
struct LateReader : Whole<stretto::mlp> {
#ifdef STRETTO_COMPILE_FAIL
  using reads = stretto::values<expert_in, hidden>;
#else
  using reads = stretto::values<expert_in, residual>;
#endif
  using writes = stretto::values<expert_out>;
};
struct ReadTwice : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, LateReader,
                                  stretto::Detach, Combine> {};
struct Step : stretto::Schedule<ReadTwice, stretto::TwoStream1F1B> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
