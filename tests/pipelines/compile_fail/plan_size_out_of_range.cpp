// expect: stretto\[E40\]: a size is out of range
// expect: size_out_of_range<
// expect: mine::Order
#include "one_chunk.hpp"

#ifdef STRETTO_COMPILE_FAIL
#define CHUNKS 2000
#else
#define CHUNKS 1
#endif

namespace mine {

struct Order : one_chunk {
  static constexpr int chunks = CHUNKS;
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m));
      sink(call::backward(0, m));
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
