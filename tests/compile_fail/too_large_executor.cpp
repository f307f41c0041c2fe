// expect: stretto\[E17\]: a block has more than 8 phases, 16 values
// expect: us::Step
#define STRETTO_WITH_EXECUTOR
#include "too_large.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
