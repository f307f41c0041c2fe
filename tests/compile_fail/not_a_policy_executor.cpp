// expect: stretto\[E19\]: a schedule needs one layer policy
// expect: the_policies<us::NoPair>
#define STRETTO_WITH_EXECUTOR
#include "not_a_policy.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
