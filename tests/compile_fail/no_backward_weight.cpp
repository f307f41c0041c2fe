// expect: stretto\[E08\]: a backward written by hand lacks a half: SplitDW needs
// expect: us::WholeBackward
#include "layer.hpp"

namespace us {
struct WholeBackward : stretto::Phase<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
  void forward(auto&) {}
  void backward(auto&) {}
};
struct Unsplit : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, WholeBackward,
                                stretto::Detach, Combine> {};
#ifdef STRETTO_COMPILE_FAIL
struct Step : stretto::Schedule<Unsplit, stretto::TwoStream1F1B, stretto::SplitDW> {};
#else
struct Step : stretto::Schedule<Unsplit, stretto::TwoStream1F1B> {};
#endif
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
// public bug: h200-03
