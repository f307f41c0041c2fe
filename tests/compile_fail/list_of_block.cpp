// expect: stretto: a list of layers is given something that is no model; write layer_list<Step::model>
// expect: us::Layer
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B> {};
#ifdef STRETTO_COMPILE_FAIL
using layers_of = stretto::layer_list<Layer>;
#else
using layers_of = stretto::layer_list<Step::model>;
#endif
} // namespace us

void use() {
  us::layers_of layers;
  layers.add(stretto::layer<us::Layer>(us::Attention{}, us::Dispatch{}, us::Experts{}, us::Combine{}));
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
