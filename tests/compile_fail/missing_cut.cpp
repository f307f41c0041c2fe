// expect: stretto\[E07\]: the policy runs two phases on different lanes, but no Detach cuts the block
// expect: TwoStream1F1B
// expect: us::Attention
// expect: us::Dispatch
#include "layer.hpp"

namespace us {
struct Joined : stretto::Block<Attention,
#ifndef STRETTO_COMPILE_FAIL
                               stretto::Detach,
#endif
                               Dispatch, stretto::Detach, Experts, stretto::Detach, Combine> {
};
struct Step : stretto::Schedule<Joined, stretto::TwoStream1F1B> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
