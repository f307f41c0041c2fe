// expect: stretto\[E19\]: a schedule needs one layer policy
// expect: mine::Order
#include "one_chunk.hpp"

#include <stretto/check/proof.hpp>

namespace mine {

struct hidden : stretto::value {};
struct Whole : stretto::Phase<stretto::attn> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<hidden>;
  void forward(auto&) {}
  void backward(auto&) {}
  static constexpr bool has_weights = false;
};
struct Layer : stretto::Block<Whole> {};

struct Order : one_chunk {
#ifdef STRETTO_COMPILE_FAIL
  bool pairs = false;
#else
  static constexpr bool pairs = false;
#endif
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m));
      sink(call::backward(0, m));
    }
  }
};
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, Order> {};

} // namespace mine

template struct stretto::proof<mine::Step>;
