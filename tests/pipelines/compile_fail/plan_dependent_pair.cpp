// expect: stretto\[E49\]: .*two halves of a pair belong to one microbatch
// expect: dependent_pair<
// expect: mine::Order
#include "one_chunk.hpp"

#ifdef STRETTO_COMPILE_FAIL
#define BEHIND 0
#else
#define BEHIND 1
#endif

namespace mine {

struct Order : one_chunk {
  static constexpr bool pairs = true;
  static constexpr void run(int ranks, int rank, int microbatches, int, auto&& sink) {
    int const wanted = 2 * (ranks - 1 - rank) + BEHIND,
              warm_up = wanted < microbatches ? wanted : microbatches;
    for (int m = 0; m < warm_up; ++m) sink(call::forward(0, m));
    for (int m = warm_up; m < microbatches; ++m) sink(call::pair(0, m, 0, m - warm_up));
    for (int m = microbatches - warm_up; m < microbatches; ++m) sink(call::backward(0, m));
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
