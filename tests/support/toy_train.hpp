#pragma once

#include "support/toy.hpp"

#include <stretto/adapters/null.hpp>

namespace toy {

/// One step over lanes that run at once and count; checks nothing, so that every test asks for what it is about.
struct trained {
  std::vector<std::uint64_t> bits;
  st::counting_lanes lanes;
  st::flat_table table;
};

template <class S, class Model = typename S::model>
trained train(std::string_view picture, int microbatches) {
  network<Model> net(picture, microbatches);
  tensors<number> numbers;
  trained result;
  st::executor run(S{}, st::backend{numbers, result.lanes}, net.layers,
                   st::sizes{.microbatches = microbatches});
  run();
  result.bits = net.bits();
  result.table = run.table();
  return result;
}

/// Two chunks whose pairs cross: the forward of one chunk meets the backward of the other; the last backward runs as I and
/// W apart.
struct CrossedChunks {
  static constexpr char const* name = "crossed_chunks";
  static constexpr st::placement map = st::placement::looped;
  static constexpr int chunks = 2;
  static constexpr bool pairs = true, splits = true;
  static constexpr int min_microbatches(int) { return 1; }
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    using st::call;
    int const last = microbatches - 1;
    sink(call::forward(0, 0));
    sink(call::forward(1, 0));
    for (int m = 1; m <= last; ++m) {
      sink(call::pair(0, m, 1, m - 1));
      sink(call::pair(1, m, 0, m - 1));
    }
    sink(call::backward_input(1, last));
    sink(call::backward_input(0, last));
    sink(call::backward_weight(1, last));
    sink(call::backward_weight(0, last));
  }
};

/// Three chunks, two microbatches ahead; the pairs meet in the middle chunk and its neighbours.
struct ThreeChunks {
  static constexpr char const* name = "three_chunks";
  static constexpr st::placement map = st::placement::looped;
  static constexpr int chunks = 3;
  static constexpr bool pairs = true, splits = false;
  static constexpr int min_microbatches(int) { return 2; }
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    using st::call;
    for (int m = 0; m < 2; ++m)
      for (int c = 0; c < 3; ++c) sink(call::forward(c, m));
    for (int m = 2; m < microbatches; ++m)
      for (int c = 0; c < 3; ++c) sink(call::pair(c, m, 2 - c, m - 2));
    for (int m = microbatches - 2; m < microbatches; ++m)
      for (int c = 2; c >= 0; --c) sink(call::backward(c, m));
  }
};

/// No pairs: every F, then the I of all microbatches, weight gradients one microbatch behind.
struct LateWeights {
  static constexpr char const* name = "late_weights";
  static constexpr st::placement map = st::placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = false, splits = true;
  static constexpr int min_microbatches(int) { return 1; }
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    using st::call;
    for (int m = 0; m < microbatches; ++m) sink(call::forward(0, m));
    for (int m = 0; m < microbatches; ++m) {
      sink(call::backward_input(0, m));
      if (m > 0) sink(call::backward_weight(0, m - 1));
    }
    sink(call::backward_weight(0, microbatches - 1));
  }
};

} // namespace toy
