#pragma once

#include <stretto/pipeline.hpp>

namespace stretto {
inline namespace v0 {

/// ZB-H1 (arXiv 2401.10241): 1F1B with B split; the weight gradients of rank r lag r microbatches behind and fill the
/// cool-down.
///
/// Bubble (P-1)(F+I-W) at the memory of the first rank of 1F1B on every rank.
struct ZeroBubbleH1 {
  static constexpr char const* name = "zero_bubble_h1";
  static constexpr placement map = placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = false, splits = true;

  static constexpr int min_microbatches(int) { return 1; }
  static constexpr int peak_live(int ranks, int, int microbatches, int) {
    return detail::at_most(ranks, microbatches);
  }

  static constexpr void run(int ranks, int rank, int microbatches, int, auto&& sink) {
    int const warm_up = detail::at_most(ranks - 1 - rank, microbatches);
    for (int m = 0; m < warm_up; ++m) sink(call::forward(0, m));
    for (int m = 0; m < microbatches; ++m) {
      if (m + warm_up < microbatches) sink(call::forward(0, m + warm_up));
      sink(call::backward_input(0, m));
      if (m >= rank) sink(call::backward_weight(0, m - rank));
    }
    for (int m = microbatches > rank ? microbatches - rank : 0; m < microbatches; ++m)
      sink(call::backward_weight(0, m));
  }
};

} // namespace v0
} // namespace stretto
