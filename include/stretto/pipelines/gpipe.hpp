#pragma once

#include <stretto/pipeline.hpp>

namespace stretto {
inline namespace v0 {

/// GPipe (arXiv 1811.06965): every forward, then every backward, both in microbatch order.
///
/// Bubble (P-1)(F+B); every microbatch is live at once.
struct GPipe {
  static constexpr char const* name = "gpipe";
  static constexpr placement map = placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = false, splits = false;

  static constexpr int min_microbatches(int) { return 1; }
  static constexpr int peak_live(int, int, int microbatches, int) { return microbatches; }

  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) sink(call::forward(0, m));
    for (int m = 0; m < microbatches; ++m) sink(call::backward(0, m));
  }
};

} // namespace v0
} // namespace stretto
