// expect: stretto\[E27\]: an item of a block is neither a phase nor Detach
// expect: not_a_phase<.*us::First
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct First : stretto::Block<Attention> {};
#ifdef STRETTO_COMPILE_FAIL
struct Model : stretto::Block<First, Layer> {};
#else
struct Model : stretto::Blocks<First, Layer> {};
#endif
struct Step : stretto::Schedule<Model, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Model>& layers) {
  layers.add(stretto::layer<us::First>(us::Attention{}));
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
