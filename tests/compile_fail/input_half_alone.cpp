// expect: stretto\[E08\]: .*neither goes without the other
// expect: us::NoWeightHalf
#include "layer.hpp"

namespace us {
// Its weight gradient would never run, in any schedule.
struct NoWeightHalf : stretto::Phase<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
#ifndef STRETTO_COMPILE_FAIL
  static constexpr bool has_weights = false;
#endif
  void forward(auto&) {}
  void backward_input(auto&) {}
};
struct Halved : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, NoWeightHalf,
                               stretto::Detach, Combine> {};
struct Step : stretto::Schedule<Halved, stretto::Serial> {};
} // namespace us

template struct stretto::proof<us::Step>;
