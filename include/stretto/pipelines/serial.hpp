#pragma once

#include <stretto/pipeline.hpp>

namespace stretto {
inline namespace v0 {

/// One microbatch at a time: F, then its B. No two microbatches are ever in flight, so no rank works beside another.
/// The reference that every other order is compared with bit by bit.
struct SerialPipeline {
  static constexpr char const* name = "serial";
  static constexpr placement map = placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = false, splits = false;

  static constexpr int min_microbatches(int) { return 1; }
  static constexpr int peak_live(int, int, int, int) { return 1; }

  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m));
      sink(call::backward(0, m));
    }
  }
};

} // namespace v0
} // namespace stretto
