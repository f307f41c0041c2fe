// expect: stretto\[E53\]: .*more chunk activations are live
// expect: too_many_live<
// expect: mine::Order
#include "one_chunk.hpp"

#ifdef STRETTO_COMPILE_FAIL
#define AHEAD 2
#else
#define AHEAD 1
#endif

namespace mine {

struct Order : one_chunk {
  static constexpr int peak_live(int, int, int, int) { return 2; }
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    int const ahead = AHEAD < microbatches ? AHEAD : microbatches;
    for (int m = 0; m < ahead; ++m) sink(call::forward(0, m));
    for (int m = 0; m < microbatches; ++m) {
      if (m + ahead < microbatches) sink(call::forward(0, m + ahead));
      sink(call::backward(0, m));
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
