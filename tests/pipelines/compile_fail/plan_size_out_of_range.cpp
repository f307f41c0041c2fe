// expect: stretto\[E40\]: a size is out of range
// expect: size_out_of_range<
// expect: mine::Order
#include <stretto/pipelines/proof.hpp>

#ifdef STRETTO_COMPILE_FAIL
#define CHUNKS 2000
#else
#define CHUNKS 1
#endif

namespace mine {

using stretto::call;

struct Order {
  static constexpr char const* name = "order";
  static constexpr auto map = stretto::placement::looped;
  static constexpr int chunks = CHUNKS;
  static constexpr bool pairs = false, splits = false;
  static constexpr int min_microbatches(int) { return 1; }
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m));
      sink(call::backward(0, m));
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
