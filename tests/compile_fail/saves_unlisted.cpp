// expect: stretto\[E30\]: a phase saves a value that it does not have
// expect: us::Keeper
// expect: the_value<us::residual>
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Keeper : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
#ifdef STRETTO_COMPILE_FAIL
  using saves = stretto::values<expert_in, residual>;
#else
  using saves = stretto::values<expert_in>;
#endif
};
struct Made : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Keeper, stretto::Detach,
                             Combine> {};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
