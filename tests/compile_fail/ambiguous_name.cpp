// expect: stretto\[E12\]: a phase reads and writes a value of this name
// expect: us::Residual
// expect: us::hidden
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Residual : Whole<stretto::mlp> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<hidden>;
#ifdef STRETTO_COMPILE_FAIL
  void forward(auto& io) { (void)io[hidden{}]; }
#else
  void forward(auto& io) { io.out(hidden{}) = io.in(hidden{}); }
#endif
};
struct Identity : stretto::Block<Residual> {};
struct Step : stretto::Schedule<Identity, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
