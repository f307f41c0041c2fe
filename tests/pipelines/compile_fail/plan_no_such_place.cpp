// expect: stretto\[E45\]: .*that is not there
// expect: no_such_place<
// expect: mine::Order
#include <stretto/pipelines/proof.hpp>

#ifdef STRETTO_COMPILE_FAIL
#define FIRST 1
#else
#define FIRST 0
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
      sink(call::forward(0, m + FIRST));
      sink(call::backward(0, m + FIRST));
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
