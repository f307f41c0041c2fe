// expect: stretto\[E20\]: phases of one node mix a backward written by hand with one left to autograd
// expect: us::Norm
// expect: us::Attention
#include "layer.hpp"

namespace us {
struct embedded : stretto::value {};
struct Embedding : Whole<stretto::attn> {
  using writes = stretto::values<embedded>;
};
struct Norm : stretto::Phase<stretto::attn> {
  using reads = stretto::values<embedded>;
  using writes = stretto::values<hidden>;
  void forward(auto&) {}
};
struct First : stretto::Block<Embedding> {};
struct Normed : stretto::Block<Norm,
#ifndef STRETTO_COMPILE_FAIL
                               stretto::Detach,
#endif
                               Attention> {
};
struct Model : stretto::Blocks<First, Normed> {};
struct Step : stretto::Schedule<Model, stretto::TwoStream1F1B> {};
} // namespace us

template struct stretto::proof<us::Step>;
