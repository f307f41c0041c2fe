// expect: stretto\[E51\]: .*not in ascending microbatch order
// expect: weight_order<
// expect: mine::Order
#include "one_chunk.hpp"

#ifdef STRETTO_COMPILE_FAIL
#define NEWEST_FIRST true
#else
#define NEWEST_FIRST false
#endif

namespace mine {

struct Order : one_chunk {
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) sink(call::forward(0, m));
    for (int m = 0; m < microbatches; ++m) sink(call::backward(0, NEWEST_FIRST ? microbatches - 1 - m : m));
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
