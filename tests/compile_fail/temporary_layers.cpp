// expect: stretto: an executor refers to its list of layers as long as it lives
// expect: no temporary
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

#include <utility>

namespace us {
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
#ifdef STRETTO_COMPILE_FAIL
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, std::move(layers), stretto::sizes{});
#else
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
#endif
  run();
}
