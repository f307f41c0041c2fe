// expect: stretto\[E10\]: a phase uses a value that it does not declare
// expect: us::Recomputing
// expect: us::tokens
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
/// Experts whose backward runs again what they need.
struct Recomputing : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
  using saves = stretto::values<expert_in>;
  void backward_input(auto& io) {
#ifdef STRETTO_COMPILE_FAIL
    (void)io[tokens{}]; // dispatch as well, which is another node
#else
    (void)io[expert_in{}];
#endif
  }
};
struct Frugal : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Recomputing,
                               stretto::Detach, Combine> {};
struct Step : stretto::Schedule<Frugal, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
// public bug: megatron-08
