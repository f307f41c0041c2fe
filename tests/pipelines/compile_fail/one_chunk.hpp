#pragma once

#include <stretto/pipelines/proof.hpp>

namespace mine {

using stretto::call;

/// What these pipelines say of themselves, besides `run`: one chunk on a rank, whole backwards, no pairs.
struct one_chunk {
  static constexpr char const* name = "order";
  static constexpr auto map = stretto::placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = false, splits = false;
  static constexpr int min_microbatches(int) { return 2; }
};

} // namespace mine
