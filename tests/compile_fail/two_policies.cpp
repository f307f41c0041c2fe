// expect: stretto\[E19\]: a schedule needs one layer policy
// expect: the_policies<.*TwoStream1F1B.*us::SharedExpertsBesideDispatch
#include "layer.hpp"

namespace us {
// Two policies would each hide something in the same window.
struct SharedExpertsBesideDispatch : stretto::TwoStream1F1B {};
#ifdef STRETTO_COMPILE_FAIL
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, SharedExpertsBesideDispatch> {};
#else
struct Step : stretto::Schedule<Layer, SharedExpertsBesideDispatch> {};
#endif
} // namespace us

template struct stretto::proof<us::Step>;
