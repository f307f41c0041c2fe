// expect: stretto\[E46\]: .*pass never runs
// expect: missing<
// expect: mine::Order
#include <stretto/pipelines/proof.hpp>

#ifdef STRETTO_COMPILE_FAIL
#define DROPPED 1
#else
#define DROPPED -1
#endif

namespace mine {

using stretto::call;

struct Order {
  static constexpr char const* name = "order";
  static constexpr auto map = stretto::placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = false, splits = false;
  static constexpr int min_microbatches(int) { return 2; }
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m));
      if (m != DROPPED) sink(call::backward(0, m));
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
