// expect: stretto\[E02\]: an op touches a value that another lane uses, and nothing makes its lane wait
// expect: TwoStream1F1B
// expect: op_at<.*forward.*Experts.*compute
// expect: the_value<us::expert_in>
// expect: op_at<.*forward.*Dispatch.*comm
#include "layer.hpp"

namespace us {
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, stretto::SplitDW> {
#ifdef STRETTO_COMPILE_FAIL
  template <stretto::form F, int Forward, int Backward> static constexpr stretto::detail::draft make_body() {
    stretto::detail::draft d = Schedule::make_body<F, Forward, Backward>();
    for (int i = 0; i < d.count; ++i)
      if (d.ops[i].is_forward() && d.ops[i].node == 2)
        for (int& w : d.ops[i].wait) w = -1;
    return d;
  }
#endif
};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
