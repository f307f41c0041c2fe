// expect: stretto\[E08\]: a backward written by hand lacks a half: SplitDW needs
// expect: us::WholeBackward
#define STRETTO_WITH_EXECUTOR
#include "no_backward_weight.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
