// expect: stretto\[E50\]: .*before the pass of its own chunk
// expect: too_early<
// expect: mine::Order
#include "one_chunk.hpp"

#ifdef STRETTO_COMPILE_FAIL
#define BACKWARD_FIRST true
#else
#define BACKWARD_FIRST false
#endif

namespace mine {

struct Order : one_chunk {
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      if (BACKWARD_FIRST) sink(call::backward(0, m));
      sink(call::forward(0, m));
      if (!BACKWARD_FIRST) sink(call::backward(0, m));
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
