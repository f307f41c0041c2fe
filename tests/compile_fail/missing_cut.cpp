// expect: stretto\[E07\]: the policy runs two phases on different lanes, but no Detach cuts the block
// expect: us::Dispatch, us::Experts>
#include "layer.hpp"

namespace us {
// The policy names the backward of the second before that of the first.
struct Joined : stretto::Block<Attention, stretto::Detach, Dispatch,
#ifndef STRETTO_COMPILE_FAIL
                               stretto::Detach,
#endif
                               Experts, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Joined, stretto::TwoStream1F1B> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
