// What is wrong in C++ is said by the compiler, once, and not again behind it.
// expect: us::Mine::forward
// expect: no member (named )?.*nothing
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct Mine : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
#ifdef STRETTO_COMPILE_FAIL
  void forward(auto& io) { io.nothing(); }
#else
  void forward(auto& io) { io.microbatch(); }
#endif
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
