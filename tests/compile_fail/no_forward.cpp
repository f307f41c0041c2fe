// expect: stretto\[E26\]: a phase has no forward
// expect: us::Mute
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Mute : stretto::Phase<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
#ifndef STRETTO_COMPILE_FAIL
  void forward(auto&) {}
#endif
  void backward(auto&) {}
  static constexpr bool has_weights = false;
};
struct Made
    : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Mute, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
