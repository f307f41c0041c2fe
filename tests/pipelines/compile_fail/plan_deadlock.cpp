// expect: stretto\[E52\]: .*wait for each other in a circle
// expect: deadlock<
// expect: mine::Order
#include "one_chunk.hpp"

#ifdef STRETTO_COMPILE_FAIL
#define AHEAD true
#else
#define AHEAD false
#endif

namespace mine {

struct Order : one_chunk {
  static constexpr void run(int, int rank, int microbatches, int, auto&& sink) {
    // The first rank wants the gradient of a microbatch before it hands on the next, the others want the next first.
    if (rank == 0 || !AHEAD) {
      for (int m = 0; m < microbatches; ++m) {
        sink(call::forward(0, m));
        sink(call::backward(0, m));
      }
    } else {
      for (int m = 0; m < microbatches; ++m) sink(call::forward(0, m));
      for (int m = 0; m < microbatches; ++m) sink(call::backward(0, m));
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
