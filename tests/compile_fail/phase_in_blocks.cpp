// expect: stretto\[E33\]: a schedule or model is made of something that is no block
// expect: not_a_block<.*us::Attention
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
#ifdef STRETTO_COMPILE_FAIL
struct Model : stretto::Blocks<Attention, Layer> {};
#else
struct Model : stretto::Blocks<Layer> {};
#endif
struct Step : stretto::Schedule<Model, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Model>& layers) {
  layers.add(stretto::layer<us::Layer>(us::Attention{}, us::Dispatch{}, us::Experts{}, us::Combine{}));
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
