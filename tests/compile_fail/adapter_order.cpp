// expect: stretto: a tensor adapter needs a type 'tensor'
// expect: null_lanes
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
#ifdef STRETTO_COMPILE_FAIL
  stretto::executor run(us::Step{}, stretto::backend{lanes, tensors}, layers, stretto::sizes{});
#else
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
#endif
  run();
}
