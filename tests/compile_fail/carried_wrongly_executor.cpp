// expect: stretto\[E24\]: a block carries a value that it writes itself, or that none of its phases reads
// expect: us::Rewriter
// expect: us::hidden
#define STRETTO_WITH_EXECUTOR
#include "carried_wrongly.cpp"

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
