// expect: stretto\[E52\]: .*wait for each other in a circle
// expect: deadlock<
// expect: mine::Order
#include <stretto/pipelines/proof.hpp>

#ifdef STRETTO_COMPILE_FAIL
#define AHEAD true
#else
#define AHEAD false
#endif

namespace mine {

using stretto::call;

struct Order {
  static constexpr char const* name = "order";
  static constexpr auto map = stretto::placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = false, splits = false;
  static constexpr int min_microbatches(int) { return 2; }
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
