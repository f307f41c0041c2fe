// expect: stretto\[E72\]: what a phase keeps in io.saved\(\) has no empty state
// expect: us::Mine
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Mine : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
  struct saved {
    explicit saved(int rows) : rows(rows) {}
#ifndef STRETTO_COMPILE_FAIL
    saved() = default;
#endif
    int rows = 0;
  };
};
struct Made
    : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Mine, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
