// expect: stretto\[E19\]: a schedule needs one layer policy
// expect: the_policies<us::NoPair>
#include "layer.hpp"

namespace us {
struct NoPair {
#ifdef STRETTO_COMPILE_FAIL
  static constexpr void pear(stretto::pair_builder& p) { stretto::Serial::pair(p); }
#else
  static constexpr void pair(stretto::pair_builder& p) { stretto::Serial::pair(p); }
#endif
};
struct Step : stretto::Schedule<Layer, NoPair> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
