// expect: stretto\[E24\]: a block carries a value that it writes itself, or that none of its phases reads
// expect: us::Rewriter
// expect: us::hidden
#include "layer.hpp"

namespace us {
struct Rewriter : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Experts,
                                 stretto::Detach, Combine> {
#ifdef STRETTO_COMPILE_FAIL
  using carries = stretto::values<hidden>;
#endif
};
struct Step : stretto::Schedule<Rewriter, stretto::TwoStream1F1B> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
