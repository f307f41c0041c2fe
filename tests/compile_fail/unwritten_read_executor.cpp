// expect: stretto\[E01\]: an op reads a value that no earlier op writes
// expect: \bHasty\b
// expect: op_at<.*backward_input.*Experts
// expect: the_gradient_of<us::expert_out>
#define STRETTO_WITH_EXECUTOR
#include "unwritten_read.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
