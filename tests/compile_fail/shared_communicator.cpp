// expect: stretto\[E37\]: more microbatches are between forward and backward of a phase than it allows
// expect: us::SecondDispatch
// expect: which_allows<3>
#include "layer.hpp"

namespace us {
/// Its buffers hold the rows of so many microbatches.
struct ThreeBuffers {
  static constexpr int in_flight = 3;
};
struct FirstDispatch : Dispatch {
  using communicator = ThreeBuffers;
};
struct more : stretto::value {};
struct SecondDispatch : Whole<stretto::dispatch> {
  using reads = stretto::values<expert_in, routing>;
  using writes = stretto::values<more>;
#ifdef STRETTO_COMPILE_FAIL
  using communicator = ThreeBuffers; // two handles of each microbatch, and a pair has two microbatches
#endif
};
struct BothExperts : Whole<stretto::mlp> {
  using reads = stretto::values<more>;
  using writes = stretto::values<expert_out>;
};
struct Made : stretto::Block<Attention, stretto::Detach, FirstDispatch, stretto::Detach, SecondDispatch,
                             stretto::Detach, BothExperts, stretto::Detach, Combine> {};
struct Step : stretto::Schedule<Made, stretto::TwoStream1F1B> {};
} // namespace us

template struct stretto::proof<us::Step>;
