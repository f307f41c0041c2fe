// expect: stretto\[E14\]: two phases of a block write the same value
// expect: us::Rewritten
// expect: us::residual
// expect: us::Attention
// expect: us::ResidualAgain
#define STRETTO_WITH_EXECUTOR
#include "written_twice.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
