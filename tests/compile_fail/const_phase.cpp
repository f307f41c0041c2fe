// expect: stretto\[E27\]: an item of a block is neither a phase nor Detach
// expect: us::(Experts|Third)
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
#ifdef STRETTO_COMPILE_FAIL
using Third = Experts const;
#else
using Third = Experts;
#endif
struct Made
    : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Third, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
