#pragma once

#include <stretto/pipeline.hpp>

namespace stretto {
inline namespace v0 {

/// DualPipeV (deepseek-ai/DualPipe, `dualpipev.py`; DeepSeek-V3, arXiv 2412.19437 section 3.2.1, cut in half): two chunks a
/// rank on a V, overlapped pairs of different chunks in the steady state, zero-bubble cool-down.
///
/// Bubble (P-1)(F&B+B-3W) where F, I and W cost the same; 2P+1 live chunk activations. The eight steps are those of the
/// source; they need 2P-1 microbatches (the source asks for 2P, one more than the steps do).
struct DualPipeV {
  static constexpr char const* name = "dual_pipe_v";
  static constexpr placement map = placement::vee;
  static constexpr int chunks = 2;
  static constexpr bool pairs = true, splits = true;

  static constexpr int min_microbatches(int ranks) { return 2 * ranks - 1; }
  static constexpr int peak_live(int ranks, int, int microbatches, int) {
    return detail::at_most(2 * ranks + 1, 2 * microbatches);
  }

  static constexpr void run(int ranks, int rank, int microbatches, int, auto&& sink) {
    int const behind = ranks - 1 - rank;
    int forwards[2] = {}, backwards[2] = {}, weights[2] = {};
    auto const forward = [&](int chunk) { sink(call::forward(chunk, forwards[chunk]++)); };
    auto const backward = [&](int chunk) {
      ++weights[chunk];
      sink(call::backward(chunk, backwards[chunk]++));
    };
    auto const input = [&](int chunk) { sink(call::backward_input(chunk, backwards[chunk]++)); };
    auto const weight = [&](int chunk) { sink(call::backward_weight(chunk, weights[chunk]++)); };
    auto const pair = [&](int chunk_f, int chunk_b) {
      ++weights[chunk_b];
      sink(call::pair(chunk_f, forwards[chunk_f]++, chunk_b, backwards[chunk_b]++));
    };

    for (int i = 0; i < 2 * behind; ++i) forward(0); // step 1
    for (int i = 0; i < rank + 1; ++i) forward(0), forward(1); // step 2
    for (int i = 0; i < behind; ++i) input(1), weight(1), forward(1); // step 3
    for (int i = 0; i < microbatches - 2 * ranks + rank + 1; ++i) { // step 4
      if (i == 0 && behind == 0) {
        // The bend of the V: B1 would wait for nothing but this rank's own work, so the source runs the two in turn.
        forward(0), backward(1);
      } else {
        pair(0, 1);
      }
      pair(1, 0);
    }
    for (int i = 0; i < behind; ++i) backward(1), pair(1, 0); // step 5
    // Step 6 splits its last rank + 1 backwards; they alternate between the chunks and end with chunk 0.
    for (int left = 2 * (rank + 1); left > 0; --left) {
      int const chunk = left % 2 == 0 ? 1 : 0;
      if (left > rank + 1) {
        backward(chunk);
      } else {
        input(chunk);
      }
    }
    // Weight gradients leave in the order of their inputs, over both chunks: those of step 6 first.
    int queued = rank + 1;
    auto const oldest_weight = [&] {
      weight(queued > 0 && queued % 2 == 0 ? 1 : 0);
      if (queued > 0) --queued;
    };
    for (int i = 0; i < behind; ++i) oldest_weight(), input(0); // step 7
    for (int i = 0; i < rank + 1; ++i) oldest_weight(); // step 8
  }
};

} // namespace v0
} // namespace stretto
