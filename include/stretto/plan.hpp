#pragma once

#include <stretto/detail/sequence.hpp>
#include <stretto/pipeline.hpp>

namespace stretto {
inline namespace v0 {

/// Where plans end: larger numbers are refused in words before anything is built.
struct plan_limits {
  static constexpr int ranks = 4096, microbatches = 1'000'000, chunks = 1024;
  static constexpr long cells = 1L << 23; ///< stages times microbatches; up to 2 GB with messages
};

/// What an executor is made for, beyond its type. `chunks` 0 takes the pipeline's own number.
struct sizes {
  int microbatches = 1;
  int ranks = 1;
  int rank = 0;
  int chunks = 0;
};

/// What a plan was made from, as values: checks, pictures and simulation need no pipeline type.
struct plan_facts {
  char const* name;
  placement map;
  int ranks, microbatches, chunks;
  bool pairs, splits;
  int least_chunks, most_chunks, least_microbatches, multiple;

  constexpr int stages() const { return ranks * chunks; }
  constexpr long cells() const { return static_cast<long>(ranks) * chunks * microbatches; }
  constexpr int stage(int rank, int chunk) const { return stage_of(map, ranks, rank, chunk); }
  constexpr int owner(int stage) const { return rank_of(map, ranks, stage); }
  /// The first of `layers` layers that stage s has, where every stage has as many as whole layers allow; that of stage
  /// `stages()` is the end.
  constexpr int first_layer(int layers, int stage) const {
    return static_cast<int>(static_cast<long>(layers) * stage / stages());
  }
  /// Row of (stage, microbatch) in a table of all of them.
  constexpr long cell(int stage, int microbatch) const {
    return static_cast<long>(stage) * microbatches + microbatch;
  }
};

/// The facts of `Pipeline` at these sizes; `chunks` 0 takes the pipeline's own number.
template <pipeline Pipeline> constexpr plan_facts facts_of(int ranks, int microbatches, int chunks = 0) {
  int const most = most_chunks<Pipeline>();
  bool const fixed = most == Pipeline::chunks;
  return {Pipeline::name,
          Pipeline::map,
          ranks,
          microbatches,
          chunks == 0 ? static_cast<int>(Pipeline::chunks) : chunks,
          Pipeline::pairs,
          Pipeline::splits,
          fixed ? most : 1,
          most,
          ranks >= 1 && ranks <= plan_limits::ranks ? Pipeline::min_microbatches(ranks) : 1,
          ranks >= 1 && ranks <= plan_limits::ranks ? microbatch_multiple<Pipeline>(ranks) : 1};
}

/// The calls of every rank, with the bound on live activations that the pipeline gives for each.
class plan {
public:
  /// An empty plan with room for `counts[rank]` calls of each rank; for plans that do not come from a pipeline type.
  constexpr plan(plan_facts const& facts, long const* counts)
      : facts_(facts), first_(facts.ranks + 1L), bounds_(facts.ranks) {
    for (int rank = 0; rank < facts.ranks; ++rank) {
      first_[rank + 1] = first_[rank] + counts[rank];
      bounds_[rank] = -1;
    }
    calls_ = detail::sequence<call>(first_[facts.ranks]);
  }

  constexpr plan_facts const& facts() const { return facts_; }
  constexpr long size() const { return first_[facts_.ranks]; }
  constexpr long size(int rank) const { return first_[rank + 1] - first_[rank]; }
  constexpr long first(int rank) const { return first_[rank]; }
  constexpr call* calls(int rank) { return calls_.data() + first_[rank]; }
  constexpr call const* calls(int rank) const { return calls_.data() + first_[rank]; }
  /// The bound on live chunk activations of `rank`; -1: none.
  constexpr int bound(int rank) const { return bounds_[rank]; }
  constexpr void set_bound(int rank, int live) { bounds_[rank] = live; }

private:
  plan_facts facts_;
  detail::sequence<long> first_;
  detail::sequence<int> bounds_;
  detail::sequence<call> calls_;
};

/// Lays out `Pipeline` for all ranks. The sizes must have passed `check_sizes`.
template <pipeline Pipeline> STRETTO_COLD constexpr plan lay_out(plan_facts const& facts) {
  detail::sequence<long> counts(facts.ranks);
  for (int rank = 0; rank < facts.ranks; ++rank) {
    detail::call_sink counted;
    Pipeline::run(facts.ranks, rank, facts.microbatches, facts.chunks, counted);
    counts[rank] = counted.count;
  }
  plan result(facts, counts.data());
  for (int rank = 0; rank < facts.ranks; ++rank) {
    detail::call_sink written{result.calls(rank)};
    Pipeline::run(facts.ranks, rank, facts.microbatches, facts.chunks, written);
    result.set_bound(rank, peak_live<Pipeline>(facts.ranks, rank, facts.microbatches, facts.chunks));
  }
  return result;
}

} // namespace v0
} // namespace stretto
