// expect: stretto\[E46\]: .*pass never runs
// expect: missing<
// expect: mine::Order
#include "one_chunk.hpp"

#ifdef STRETTO_COMPILE_FAIL
#define DROPPED 1
#else
#define DROPPED -1
#endif

namespace mine {

struct Order : one_chunk {
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m));
      if (m != DROPPED) sink(call::backward(0, m));
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
