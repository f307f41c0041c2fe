// expect: stretto\[E64\]: a Recompute spans a Detach, or a part of a node only
// expect: us::Dispatch
#include "layer.hpp"

namespace us {
using stretto::Detach, stretto::Recompute;
#ifdef STRETTO_COMPILE_FAIL
struct Frugal : stretto::Block<Attention, Detach, Recompute<Dispatch, Detach, Experts, Detach, Combine>> {};
#else
struct Frugal : stretto::Block<Attention, Detach, Dispatch, Detach, Recompute<Experts>, Detach, Combine> {};
#endif
struct Step : stretto::Schedule<Frugal, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

template struct stretto::proof<us::Step>;
// public bug: megatron-08
