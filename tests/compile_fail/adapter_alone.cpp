// expect: stretto: a backend is made of tensors and lanes
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
#ifdef STRETTO_COMPILE_FAIL
  stretto::executor run(us::Step{}, stretto::backend{tensors}, layers, stretto::sizes{});
#else
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
#endif
  run();
}
