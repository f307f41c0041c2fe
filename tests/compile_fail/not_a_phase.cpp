// expect: stretto\[E27\]: an item of a block is neither a phase nor Detach
// expect: us::Plain
// expect: \A(?![\s\S]*E68)
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
#ifdef STRETTO_COMPILE_FAIL
class Plain : stretto::Phase<stretto::mlp> { // as of any class, the base is private
public:
#else
struct Plain : stretto::Phase<stretto::mlp> {
#endif
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
  void forward(auto&) {}
  void backward_input(auto&) {}
  void backward_weight(auto&) {}
};
struct Made
    : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Plain, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  layers.add(stretto::layer<us::Made>(us::Attention{}, us::Dispatch{}, us::Plain{}, us::Combine{}));
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
