// expect: stretto\[E09\]: an op waits for an op that is issued later
// expect: op_at<.*Dispatch.*comm
// expect: op_at<.*Experts.*compute
#define STRETTO_WITH_EXECUTOR
#include "wait_on_later.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
