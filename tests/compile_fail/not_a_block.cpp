// expect: stretto\[E33\]: a schedule or model is made of something that is no block
// expect: us::Loose
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
#ifdef STRETTO_COMPILE_FAIL
struct Loose {
#else
struct Loose : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Experts, stretto::Detach,
                              Combine> {
#endif
};
struct Step : stretto::Schedule<Loose, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
// public bug: megatron-20
