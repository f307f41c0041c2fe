// expect: stretto\[E15\]: two nodes of a block read the same value of the layer before
// expect: us::ReadTwice
// expect: us::hidden
// expect: us::Attention
// expect: us::LateReader
#define STRETTO_WITH_EXECUTOR
#include "input_of_two_nodes.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
