// expect: stretto\[E69\]: a backward uses a value that its phase does not save
// expect: us::Squashing
// expect: us::expert_out
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
/// The gradient of a tanh follows from what it wrote.
struct Squashing : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
#ifdef STRETTO_COMPILE_FAIL
  using saves = stretto::values<expert_in>;
#else
  using saves = stretto::values<expert_out>;
#endif
  void backward_input(auto& io) { (void)io.out(expert_out{}); }
};
struct Squashed : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Squashing,
                                 stretto::Detach, Combine> {};
struct Step : stretto::Schedule<Squashed, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
