// expect: stretto\[E19\]: a schedule needs one layer policy
// expect: the_policies<us::AtRunTime>
#include "layer.hpp"

namespace us {
struct AtRunTime {
#ifdef STRETTO_COMPILE_FAIL
  static void pair(stretto::pair_builder& p) { stretto::Serial::pair(p); }
#else
  static constexpr void pair(stretto::pair_builder& p) { stretto::Serial::pair(p); }
#endif
};
struct Step : stretto::Schedule<Layer, AtRunTime> {};
} // namespace us

template struct stretto::proof<us::Step>;
