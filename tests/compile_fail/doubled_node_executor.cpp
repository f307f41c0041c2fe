// expect: stretto\[E06\]: a pass of a node runs twice
// expect: \bTwice\b
// expect: pass_of<.*forward.*Dispatch
#define STRETTO_WITH_EXECUTOR
#include "doubled_node.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
