// expect: stretto\[E16\]: a block reads a value that no phase before it and no block of the model writes
// expect: us::Misspelt
// expect: us::resldual
// expect: us::MisspeltCombine
#define STRETTO_WITH_EXECUTOR
#include "never_produced.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
