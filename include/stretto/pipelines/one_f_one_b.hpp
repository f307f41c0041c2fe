#pragma once

#include <stretto/pipeline.hpp>

namespace stretto {
inline namespace v0 {

/// 1F1B: as many forwards as there are ranks behind, then one forward and one backward in turn (PipeDream-flush,
/// arXiv 2006.09503; arXiv 2104.04473 section 2.2).
///
/// The bubble is that of GPipe, (P-1)(F+B); the live activations are bounded by the ranks, not by the microbatches.
struct OneFOneB {
  static constexpr char const* name = "one_f_one_b";
  static constexpr placement map = placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = false, splits = false;

  static constexpr int min_microbatches(int) { return 1; }
  static constexpr int peak_live(int ranks, int rank, int microbatches, int) {
    return detail::at_most(ranks - rank, microbatches);
  }

  static constexpr void run(int ranks, int rank, int microbatches, int, auto&& sink) {
    int const warm_up = detail::at_most(ranks - 1 - rank, microbatches);
    for (int m = 0; m < warm_up; ++m) sink(call::forward(0, m));
    for (int m = warm_up; m < microbatches; ++m) {
      sink(call::forward(0, m));
      sink(call::backward(0, m - warm_up));
    }
    for (int m = microbatches - warm_up; m < microbatches; ++m) sink(call::backward(0, m));
  }
};

/// 1F1B whose steady step is an overlapped pair: one extra warm-up microbatch makes its forward and its backward belong to
/// different microbatches. With one rank: F0, F1&B0, F2&B1, ..., B of the last.
///
/// The outputs of a pair leave together at its end, so a microbatch moves one rank per pair in both directions, and the
/// warm-up is two forwards per rank behind, as in interleaved schedules; with one per rank, as in 1F1B, every rank would be
/// idle half of the time. Megatron-LM's expert overlap asks for interleaving where P > 1; the independence of the two
/// halves does not need it. At most 2(P-r) live activations.
struct OneFOneBOverlapped {
  static constexpr char const* name = "one_f_one_b_ep";
  static constexpr placement map = placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = true, splits = false;

  static constexpr int min_microbatches(int) { return 1; }
  static constexpr int peak_live(int ranks, int rank, int microbatches, int) {
    return detail::at_most(2 * (ranks - rank), microbatches);
  }

  static constexpr void run(int ranks, int rank, int microbatches, int, auto&& sink) {
    int const warm_up = detail::at_most(2 * (ranks - 1 - rank) + 1, microbatches);
    for (int m = 0; m < warm_up; ++m) sink(call::forward(0, m));
    for (int m = warm_up; m < microbatches; ++m) sink(call::pair(0, m, 0, m - warm_up));
    for (int m = microbatches - warm_up; m < microbatches; ++m) sink(call::backward(0, m));
  }
};

} // namespace v0
} // namespace stretto
