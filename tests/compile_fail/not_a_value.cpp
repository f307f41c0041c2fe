// expect: stretto\[E28\]: a phase or block lists something that is no value
// expect: us::Foreign
// expect: the_value<us::stranger>
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
#ifdef STRETTO_COMPILE_FAIL
struct stranger {};
#else
struct stranger : stretto::value {};
#endif
struct Foreign : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out, stranger>;
};
struct Made : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Foreign, stretto::Detach,
                             Combine> {};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
