// expect: stretto: an executor is made of a schedule, a backend, a list of layers and sizes; write them in this order
// expect: us::Model
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Model : stretto::Blocks<Layer> {};
struct Step : stretto::Schedule<Model, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
#ifdef STRETTO_COMPILE_FAIL
  stretto::executor run(us::Model{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
#else
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
#endif
  run();
}
