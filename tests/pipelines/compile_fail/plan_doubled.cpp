// expect: stretto\[E47\]: .*pass runs twice
// expect: doubled<
// expect: mine::Order
#include "one_chunk.hpp"

#ifdef STRETTO_COMPILE_FAIL
#define TIMES 2
#else
#define TIMES 1
#endif

namespace mine {

struct Order : one_chunk {
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m));
      for (int again = 0; again < TIMES; ++again) sink(call::backward(0, m));
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
