// expect: stretto\[E04\]: a weight gradient runs before the input gradient of its node
// expect: \bEager\b
// expect: op_at<.*backward_weight.*Experts
// expect: what_backward_input_keeps_for_weight_of<us::Experts>
#define STRETTO_WITH_EXECUTOR
#include "weight_before_input.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
