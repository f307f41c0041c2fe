// expect: stretto\[E03\]: an op reads a value that was given back
// expect: \bForgetful\b
// expect: op_at<.*backward.*Count
// expect: the_value<us::routing>
// expect: op_at<.*backward.*Gate
#define STRETTO_WITH_EXECUTOR
#include "read_after_release.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
