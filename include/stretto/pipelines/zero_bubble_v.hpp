#pragma once

#include <stretto/pipeline.hpp>

namespace stretto {
inline namespace v0 {

/// ZB-V (arXiv 2401.10241 section 6): two chunks a rank on a V, B split. No bubble where F, I and W cost the same; 2P
/// chunk activations on every rank, the memory of 1F1B's first rank.
///
/// The fixed pattern is laid out for at least 2P-1 microbatches; with fewer, the steps of the missing ones fall out.
struct ZeroBubbleV {
  static constexpr char const* name = "zero_bubble_v";
  static constexpr placement map = placement::vee;
  static constexpr int chunks = 2;
  static constexpr bool pairs = false, splits = true;

  static constexpr int min_microbatches(int) { return 1; }
  static constexpr int peak_live(int ranks, int, int microbatches, int) {
    return 2 * detail::at_most(ranks, microbatches);
  }

  static constexpr void run(int ranks, int rank, int microbatches, int, auto&& sink) {
    int const laid_out = microbatches < 2 * ranks - 1 ? 2 * ranks - 1 : microbatches;
    int forwards[2] = {}, inputs[2] = {}, weights[2] = {};
    auto const forward = [&](int chunk) {
      if (int const m = forwards[chunk]++; m < microbatches) sink(call::forward(chunk, m));
    };
    auto const input = [&](int chunk) {
      if (int const m = inputs[chunk]++; m < microbatches) sink(call::backward_input(chunk, m));
    };
    auto const weight = [&](int chunk) {
      if (int const m = weights[chunk]++; m < microbatches) sink(call::backward_weight(chunk, m));
    };

    for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) forward(0);
    for (int i = 0; i < rank; ++i) forward(1), forward(0);
    for (int i = 0; i < ranks - rank; ++i) forward(1), input(1), weight(1);
    while (forwards[1] < laid_out) {
      if (forwards[0] < laid_out) forward(0);
      input(0), weight(0);
      forward(1), input(1), weight(1);
    }
    for (int i = 0; i < rank; ++i) input(0), input(1);
    for (int i = 0; i < ranks - rank; ++i) input(0), weight(0);
    while (weights[1] < laid_out) weight(1);
    while (weights[0] < laid_out) weight(0);
  }
};

} // namespace v0
} // namespace stretto
