// expect: stretto\[E71\]: has_weights or in_flight of a phase, or in_flight of its communicator, is no constant
// expect: us::Mine
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Mine : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
#ifdef STRETTO_COMPILE_FAIL
  bool has_weights = true;
#else
  static constexpr bool has_weights = true;
#endif
};
struct Made
    : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Mine, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
