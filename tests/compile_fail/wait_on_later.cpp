// expect: stretto\[E09\]: an op waits for an op that is issued later
// expect: op_at<.*Dispatch.*comm
// expect: op_at<.*Experts.*compute
#include "layer.hpp"

namespace us {
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B> {
#ifdef STRETTO_COMPILE_FAIL
  template <stretto::form F, int Forward, int Backward> static constexpr stretto::detail::draft make_body() {
    stretto::detail::draft d = Schedule::make_body<F, Forward, Backward>();
    for (int i = 0; i < d.count; ++i)
      for (int later = i + 1; later < d.count; ++later)
        if (d.ops[i].is_forward() && d.ops[i].node == 1 && d.ops[later].is_forward() &&
            d.ops[later].node == 2)
          d.ops[i].wait[0] = later;
    return d;
  }
#endif
};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
