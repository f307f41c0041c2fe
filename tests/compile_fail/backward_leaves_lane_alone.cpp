// expect: stretto\[E36\]: a node runs forward on one lane and backward on another
// expect: us::Wandering
// expect: op_at<.*forward.*us::Mixer.*comm
// expect: op_at<.*backward.*us::Mixer.*compute
#include "layer.hpp"

namespace us {
struct Mixer : stretto::Phase<stretto::dispatch> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<hidden>;
  void forward(auto&) {}
};
struct Wandering {
  static constexpr void pair(stretto::pair_builder& p) {
    p.comm(p.f.forward(stretto::dispatch), p.b.backward(stretto::dispatch));
  }
#ifdef STRETTO_COMPILE_FAIL
  static constexpr void backward(stretto::pair_builder& p) { p.compute(p.b.backward(stretto::dispatch)); }
#endif
};
struct Mixed : stretto::Block<Mixer> {};
struct Step : stretto::Schedule<Mixed, Wandering, stretto::OneFOneB> {};
} // namespace us

template struct stretto::proof<us::Step>;
