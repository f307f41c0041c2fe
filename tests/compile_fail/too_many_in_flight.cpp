// expect: stretto\[E37\]: more microbatches are between forward and backward of a phase than it allows
// expect: us::OneBuffer
// expect: which_allows<1>
#include "layer.hpp"

namespace us {
struct OneBuffer : Whole<stretto::dispatch> {
  using reads = stretto::values<tokens, routing>;
  using writes = stretto::values<expert_in>;
#ifdef STRETTO_COMPILE_FAIL
  static constexpr int in_flight = 1;
#else
  static constexpr int in_flight = 2;
#endif
};
struct Made : stretto::Block<Attention, stretto::Detach, OneBuffer, stretto::Detach, Experts, stretto::Detach,
                             Combine> {};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

template struct stretto::proof<us::Step>;
// public bug: building-blocks-13
