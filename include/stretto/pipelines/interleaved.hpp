#pragma once

#include <stretto/pipeline.hpp>

namespace stretto {
inline namespace v0 {

namespace detail {

/// The order in which interleaved schedules visit (chunk, microbatch): groups of microbatches, in a group chunk after
/// chunk (arXiv 2104.04473 section 2.2). Backward walks the same table with the chunks mirrored.
struct interleaved_table {
  int microbatches, chunks, group;

  /// A group must keep every rank busy until its first microbatch comes round again, so none may be smaller than the number
  /// of ranks (Megatron-LM asks the same of `microbatch_group_size_per_vp_stage`: M % group is 0 or >= P). The smallest
  /// such group is taken: P itself where P divides M, and M/(M/P) where PyTorch accepts it. Fewer microbatches than ranks
  /// are one group.
  static constexpr int group_for(int ranks, int microbatches) {
    int size = at_most(ranks, microbatches);
    while (microbatches % size != 0 && microbatches % size < ranks) ++size;
    return size;
  }

  constexpr interleaved_table(int ranks, int all_microbatches, int all_chunks)
      : microbatches(all_microbatches), chunks(all_chunks), group(group_for(ranks, all_microbatches)) {}

  constexpr int size() const { return microbatches * chunks; }

  struct place {
    int chunk, microbatch;
  };
  constexpr place operator[](int at) const {
    int const whole = group * chunks, first = at / whole * group;
    int const members = at_most(group, microbatches - first), inside = at % whole;
    return {inside / members, first + inside % members};
  }
  constexpr call forward(int at) const { return call::forward((*this)[at].chunk, (*this)[at].microbatch); }
  constexpr call backward(int at) const {
    return call::backward(chunks - 1 - (*this)[at].chunk, (*this)[at].microbatch);
  }
  constexpr call pair(int at_f, int at_b) const {
    return call::pair((*this)[at_f].chunk, (*this)[at_f].microbatch, chunks - 1 - (*this)[at_b].chunk,
                      (*this)[at_b].microbatch);
  }

  /// Forwards before the first backward on `rank`.
  constexpr int warm_up(int ranks, int rank) const { return 2 * (ranks - 1 - rank) + (chunks - 1) * group; }
};

} // namespace detail

/// Interleaved 1F1B (virtual pipeline, VPP; arXiv 2104.04473 section 2.2): every rank holds `Chunks` chunks of the model,
/// stage s lies on rank s mod P.
///
/// The bubble of 1F1B divided by the chunks, for more live activations and more messages.
template <int Chunks = 2> struct Interleaved {
  static constexpr char const* name = "interleaved";
  static constexpr placement map = placement::looped;
  static constexpr int chunks = Chunks, most_chunks = 64;
  static constexpr bool pairs = false, splits = false;

  static constexpr int min_microbatches(int) { return 1; }
  static constexpr int peak_live(int ranks, int rank, int microbatches, int held) {
    detail::interleaved_table const table(ranks, microbatches, held);
    return detail::at_most(table.warm_up(ranks, rank) + 1, table.size());
  }

  static constexpr void run(int ranks, int rank, int microbatches, int held, auto&& sink) {
    detail::interleaved_table const table(ranks, microbatches, held);
    int const all = table.size(), warm_up = detail::at_most(table.warm_up(ranks, rank), all);
    for (int k = 0; k < warm_up; ++k) sink(table.forward(k));
    for (int k = warm_up; k < all; ++k) {
      sink(table.forward(k));
      sink(table.backward(k - warm_up));
    }
    for (int k = all - warm_up; k < all; ++k) sink(table.backward(k));
  }
};

/// Interleaved 1F1B with one extra warm-up microbatch: the two halves of a steady step are independent and run as one
/// overlapped pair, so that expert communication hides (Megatron-LM `combined_1f1b`, MindSpeed `--moe-fb-overlap`).
template <int Chunks = 2> struct InterleavedOverlapped {
  static constexpr char const* name = "interleaved_ep";
  static constexpr placement map = placement::looped;
  static constexpr int chunks = Chunks, most_chunks = 64;
  static constexpr bool pairs = true, splits = false;

  static constexpr int min_microbatches(int) { return 1; }
  static constexpr int peak_live(int ranks, int rank, int microbatches, int held) {
    detail::interleaved_table const table(ranks, microbatches, held);
    return detail::at_most(table.warm_up(ranks, rank) + 2, table.size());
  }

  static constexpr void run(int ranks, int rank, int microbatches, int held, auto&& sink) {
    detail::interleaved_table const table(ranks, microbatches, held);
    // The extra microbatch is added before the clamp: the other way round leaves -1 steady steps where M == P.
    int const all = table.size(), warm_up = detail::at_most(table.warm_up(ranks, rank) + 1, all);
    for (int k = 0; k < warm_up; ++k) sink(table.forward(k));
    for (int k = warm_up; k < all; ++k) sink(table.pair(k, k - warm_up));
    for (int k = all - warm_up; k < all; ++k) sink(table.backward(k));
  }
};

} // namespace v0
} // namespace stretto
