// expect: stretto\[E11\]: a phase assigns a value that it does not declare
// expect: us::Assigning
// expect: us::tokens
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Assigning : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
#ifdef STRETTO_COMPILE_FAIL
  void forward(auto& io) { (void)io.out(tokens{}); }
#else
  void forward(auto& io) { (void)io.out(expert_out{}); }
#endif
};
struct Loose : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Assigning,
                              stretto::Detach, Combine> {};
struct Step : stretto::Schedule<Loose, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
