// expect: stretto\[E05\]: a pass of a node never runs
// expect: \bShort\b
// expect: pass_of<.*backward_weight.*Experts
#define STRETTO_WITH_EXECUTOR
#include "missing_node.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
