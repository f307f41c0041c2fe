// expect: stretto\[E35\]: a block reads metadata that no phase of it wrote before
// expect: us::Tail
// expect: us::Late
// expect: us::routing
#include "layer.hpp"

namespace us {
struct Late : Whole<stretto::mlp> {
#ifdef STRETTO_COMPILE_FAIL
  using reads = stretto::values<hidden, routing>;
#else
  using reads = stretto::values<hidden>;
#endif
  using writes = stretto::values<hidden>;
};
struct Tail : stretto::Block<Late> {};
struct Step : stretto::Schedule<stretto::Blocks<Layer, Tail>, stretto::TwoStream1F1B> {};
} // namespace us

template struct stretto::proof<us::Step>;
