// expect: stretto\[E62\]: an executor is given layers of another model than that of its schedule
// expect: us::Step
// expect: us::Other
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, stretto::SplitDW> {};
struct Other : stretto::Blocks<Layer> {};
#ifdef STRETTO_COMPILE_FAIL
using layers_of = stretto::layer_list<Other>;
#else
using layers_of = stretto::layer_list<Step::model>;
#endif
} // namespace us

void use(us::layers_of& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
