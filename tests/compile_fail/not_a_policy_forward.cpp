// expect: stretto\[E19\]: a schedule needs one layer policy
// expect: the_policies<us::LoneForward>
#include "layer.hpp"

namespace us {
struct LoneForward : stretto::TwoStream1F1B {
#ifdef STRETTO_COMPILE_FAIL
  static constexpr void forward(stretto::forward_side&) {}
#else
  static constexpr void forward(stretto::pair_builder& p) { stretto::Serial::pair(p); }
#endif
};
struct Step : stretto::Schedule<Layer, LoneForward> {};
} // namespace us

template struct stretto::proof<us::Step>;
