// expect: stretto\[E07\]: the policy runs two phases on different lanes, but no Detach cuts the block
// expect: us::Dispatch, us::Experts>
#define STRETTO_WITH_EXECUTOR
#include "missing_cut.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
