// expect: stretto\[E28\]: a phase or block lists something that is no value
// expect: us::Bare
// expect: the_value<us::(expert_in|Bare::reads)>
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Bare : Whole<stretto::mlp> {
#ifdef STRETTO_COMPILE_FAIL
  using reads = expert_in;
#else
  using reads = stretto::values<expert_in>;
#endif
  using writes = stretto::values<expert_out>;
};
struct Made
    : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Bare, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
