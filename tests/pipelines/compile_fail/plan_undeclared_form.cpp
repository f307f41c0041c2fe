// expect: stretto\[E48\]: .*form that the pipeline does not declare
// expect: undeclared_form<
// expect: mine::Order
#include "one_chunk.hpp"

#ifdef STRETTO_COMPILE_FAIL
#define SPLIT true
#else
#define SPLIT false
#endif

namespace mine {

struct Order : one_chunk {
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m));
      if (SPLIT) {
        sink(call::backward_input(0, m));
        sink(call::backward_weight(0, m));
      } else {
        sink(call::backward(0, m));
      }
    }
  }
};

} // namespace mine

template struct stretto::pipeline_proof<mine::Order>;
