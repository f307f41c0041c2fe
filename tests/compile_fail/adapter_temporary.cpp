// expect: stretto: a backend refers to its adapters
// expect: null_tensors
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_lanes lanes;
#ifdef STRETTO_COMPILE_FAIL
  stretto::executor run(us::Step{}, stretto::backend{stretto::null_tensors{}, lanes}, layers,
                        stretto::sizes{});
#else
  stretto::null_tensors tensors;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
#endif
  run();
}
