// expect: stretto\[E73\]: a phase uses a gradient where there is none
// expect: us::Eager
// expect: us::expert_in
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Eager : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
#ifdef STRETTO_COMPILE_FAIL
  void backward_weight(auto& io) { io.grad(expert_in{}) = io.grad(expert_out{}); }
#else
  void backward_input(auto& io) { io.grad(expert_in{}) = io.grad(expert_out{}); }
  void backward_weight(auto& io) { (void)io.grad(expert_out{}); }
#endif
};
struct Hasty
    : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Eager, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Hasty, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
