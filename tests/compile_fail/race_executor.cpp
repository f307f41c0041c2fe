// expect: stretto\[E02\]: an op touches a value that another lane uses, and nothing makes its lane wait
// expect: TwoStream1F1B
// expect: op_at<.*forward.*Experts.*compute
// expect: the_value<us::expert_in>
// expect: op_at<.*forward.*Dispatch.*comm
#define STRETTO_WITH_EXECUTOR
#include "race.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
