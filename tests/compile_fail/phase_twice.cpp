// expect: stretto\[E31\]: a block holds one phase type twice
// expect: us::Gate
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct gated : stretto::value {};
template <class Read, class Written> struct gate_of : Whole<stretto::attn> {
  using reads = stretto::values<Read>;
  using writes = stretto::values<Written>;
};
struct Gate : gate_of<hidden, gated> {};
#ifdef STRETTO_COMPILE_FAIL
using Other = Gate;
#else
struct Other : gate_of<gated, hidden> {};
#endif
struct Made : stretto::Block<Gate, stretto::Detach, Other> {};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
