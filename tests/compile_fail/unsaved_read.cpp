// expect: stretto\[E69\]: a backward uses a value that its phase does not save
// expect: us::Frugal
// expect: us::expert_in
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Frugal : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
#ifdef STRETTO_COMPILE_FAIL
  using saves = stretto::values<>;
#else
  using saves = stretto::values<expert_in>;
#endif
  void backward_weight(auto& io) { (void)io[expert_in{}]; }
};
struct Sparing : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Frugal,
                                stretto::Detach, Combine> {};
struct Step : stretto::Schedule<Sparing, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
// public bug: megatron-01
// public bug: megatron-37
