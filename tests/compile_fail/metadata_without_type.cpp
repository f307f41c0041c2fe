// expect: stretto\[E29\]: metadata does not say what it holds
// expect: us::Counting
// expect: the_value<us::rows>
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct rows : stretto::metadata {
#ifndef STRETTO_COMPILE_FAIL
  using type = int;
#endif
};
struct Counting : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out, rows>;
};
struct Made : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Counting, stretto::Detach,
                             Combine> {};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
