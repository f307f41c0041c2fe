// expect: stretto\[E10\]: a phase uses a value that it does not declare
// expect: us::Mine
// expect: us::residual
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Mine : Whole<stretto::mlp> {
#ifdef STRETTO_COMPILE_FAIL
  using reads = stretto::values<expert_in>;
#else
  using reads = stretto::values<expert_in, residual>;
#endif
  using writes = stretto::values<expert_out>;
  auto forward(auto& io) { io[expert_out{}] = io[residual{}]; }
};
struct Made
    : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Mine, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
