// expect: stretto\[E45\]: .*that is not there
// expect: no_such_place<
// expect: mine::Order
#include "one_chunk.hpp"

#ifdef STRETTO_COMPILE_FAIL
#define FIRST 1
#else
#define FIRST 0
#endif

namespace mine {

struct Order : one_chunk {
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m + FIRST));
      sink(call::backward(0, m + FIRST));
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
