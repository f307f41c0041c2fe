// expect: stretto\[E17\]: a block has more than 8 phases, 16 values
// expect: us::Step
#include "layer.hpp"

namespace us {
template <int> struct head : stretto::value {};
struct ManyHeads : Whole<stretto::attn> {
  using writes = stretto::values<hidden, head<1>, head<2>, head<3>, head<4>, head<5>, head<6>, head<7>,
                                 head<8>, head<9>, head<10>, head<11>, head<12>, head<13>, head<14>
#ifdef STRETTO_COMPILE_FAIL
                                 ,
                                 head<15>, head<16>
#endif
                                 >;
};
struct Wide : stretto::Block<ManyHeads> {};
struct Step : stretto::Schedule<Wide, stretto::Serial> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
