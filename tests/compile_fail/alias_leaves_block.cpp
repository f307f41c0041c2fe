// expect: stretto\[E39\]: a phase aliases what is no pair of a value that it reads and a value that it writes
// expect: us::Identity
// expect: us::hidden
#include "layer.hpp"

namespace us {
struct normed : stretto::value {};
struct Norm : Whole<stretto::attn> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<normed>;
};
struct Identity : Whole<stretto::mlp> {
  using reads = stretto::values<normed>;
  using writes = stretto::values<hidden>;
#ifdef STRETTO_COMPILE_FAIL
  using aliases = stretto::values<normed, hidden>;
#endif
};
struct Made : stretto::Block<Norm, stretto::Detach, Identity> {};
struct Step : stretto::Schedule<Made, stretto::Serial> {};
} // namespace us

template struct stretto::proof<us::Step>;
