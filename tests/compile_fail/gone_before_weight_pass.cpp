// expect: stretto\[E13\]: a weight pass uses metadata or an output
// expect: us::Late
// expect: us::routing
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Late : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in, routing>;
  using writes = stretto::values<expert_out>;
#ifdef STRETTO_COMPILE_FAIL
  void backward_weight(auto& io) { (void)io[routing{}]; }
#else
  using saved = int;
  void backward_input(auto& io) { io.saved() = io[routing{}]; }
  void backward_weight(auto& io) { (void)io.saved(); }
#endif
};
struct Routed
    : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Late, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Routed, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
// public bug: pipelines-16
