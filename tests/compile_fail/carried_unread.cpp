// expect: stretto\[E24\]: a block carries a value that it writes itself, or that none of its phases reads
// expect: us::Carrier
// expect: us::tokens
#include "layer.hpp"

namespace us {
struct Loss : stretto::objective {};
struct Head : Whole<stretto::mlp> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<Loss>;
};
struct Carrier : stretto::Block<Head> {
#ifdef STRETTO_COMPILE_FAIL
  using carries = stretto::values<hidden, tokens>;
#else
  using carries = stretto::values<hidden>;
#endif
};
struct Model : stretto::Blocks<Layer, Carrier> {};
struct Step : stretto::Schedule<Model, stretto::TwoStream1F1B> {};
} // namespace us

#ifndef STRETTO_WITH_EXECUTOR
template struct stretto::proof<us::Step>;
#endif
