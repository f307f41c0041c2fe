// expect: stretto\[E36\]: a node runs forward on one lane and backward on another
// expect: us::Wandering
// expect: op_at<.*forward.*us::Expander.*compute
// expect: op_at<.*weight.*us::Expander.*comm
#include "layer.hpp"

namespace us {
struct Mixer : stretto::Phase<stretto::dispatch> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<tokens>;
  void forward(auto&) {}
};
struct Expander : stretto::Phase<stretto::mlp> {
  using reads = stretto::values<tokens>;
  using writes = stretto::values<hidden>;
  void forward(auto&) {}
};
struct Wandering {
  static constexpr void pair(stretto::pair_builder& p) {
    p.comm(p.f.forward(stretto::dispatch));
    p.compute(p.b.input(stretto::mlp), p.f.forward(stretto::mlp));
#ifdef STRETTO_COMPILE_FAIL
    p.comm(p.b.weight(stretto::mlp), p.b.backward(stretto::dispatch));
#else
    p.compute(p.b.weight(stretto::mlp));
    p.comm(p.b.backward(stretto::dispatch));
#endif
  }
};
struct Mixed : stretto::Block<Mixer, stretto::Detach, Expander> {};
struct Step : stretto::Schedule<Mixed, Wandering, stretto::SplitDW> {};
} // namespace us

template struct stretto::proof<us::Step>;
