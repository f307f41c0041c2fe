// expect: stretto\[E70\]: a pass of a phase is nothing that can be called with io
// expect: us::Mine
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Mine : stretto::Phase<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
  void forward(auto&) {}
#ifdef STRETTO_COMPILE_FAIL
private:
#endif
  void backward_input(auto&) {}
  void backward_weight(auto&) {}
};
struct Made
    : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Mine, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
