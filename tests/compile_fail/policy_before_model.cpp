// expect: stretto\[E33\]: a schedule or model is made of something that is no block
// expect: not_a_block<.*TwoStream1F1B
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
#ifdef STRETTO_COMPILE_FAIL
struct Step : stretto::Schedule<stretto::TwoStream1F1B, Layer> {};
#else
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B> {};
#endif
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
