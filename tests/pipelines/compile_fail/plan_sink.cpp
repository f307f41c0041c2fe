// expect: stretto\[E19\]: a schedule needs one layer policy
// expect: mine::Order
#include "one_layer.hpp"

namespace mine {

struct Order : one_chunk {
#ifdef STRETTO_COMPILE_FAIL
  static constexpr void run(int, int, int microbatches, int, void (*sink)(call)) { emit(microbatches, sink); }
#else
  static constexpr void run(int, int, int microbatches, int, auto&& sink) { emit(microbatches, sink); }
#endif
  static constexpr void emit(int microbatches, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m));
      sink(call::backward(0, m));
    }
  }
};

} // namespace mine

template struct stretto::proof<mine::StepIn<mine::Order>>;
