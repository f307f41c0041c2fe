// expect: stretto\[E32\]: a phase keeps something in io.saved\(\) and does not say what
// expect: us::Rooting
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Rooting : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
#ifndef STRETTO_COMPILE_FAIL
  using saved = double;
#endif
  void forward(auto& io) { io.saved() = 2.0; }
};
struct Made : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Rooting, stretto::Detach,
                             Combine> {};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
