// expect: stretto\[E21\]: a phase has only forward\(\), and the tensor adapter does not differentiate
// expect: us::ForwardOnly
// expect: null_tensors
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct ForwardOnly : stretto::Phase<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
  void forward(auto&) {}
#ifndef STRETTO_COMPILE_FAIL
  void backward(auto&) {}
#endif
};
struct Plain : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, ForwardOnly,
                              stretto::Detach, Combine> {};
struct Step : stretto::Schedule<Plain, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
