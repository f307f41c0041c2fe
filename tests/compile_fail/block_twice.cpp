// expect: stretto\[E34\]: a model lists one block type twice
// expect: us::Layer
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
#ifdef STRETTO_COMPILE_FAIL
using Second = Layer;
#else
struct Second : Layer {};
#endif
struct Model : stretto::Blocks<Layer, Second> {};
struct Step : stretto::Schedule<Model, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
