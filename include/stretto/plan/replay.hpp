#pragma once

#include <stretto/plan.hpp>

namespace stretto {
inline namespace v0 {

/// When every call of a plan starts and ends, every rank running its calls in order as soon as their inputs are there.
/// Rows are those of the plan: `plan.first(rank) + position`.
template <class Time> struct plan_times {
  detail::sequence<Time> start, finish;
  detail::sequence<long> done; ///< calls that ran, per rank
  Time makespan = 0;
  bool complete = false; ///< false: the ranks wait for each other in a circle
};

namespace detail {

/// When F and the input gradients of every (stage, microbatch) were ready; negative: not yet.
template <class Time> struct plan_results {
  plan_facts const& facts;
  sequence<Time> forward, input;

  constexpr explicit plan_results(plan_facts const& of)
      : facts(of), forward(of.cells(), Time{-1}), input(forward) {}

  /// When the inputs of `one` are on `rank`, or a negative time while one of them is missing. `hop` is what a message
  /// between two ranks takes.
  STRETTO_COLD constexpr Time ready(int rank, call const& one, Time hop) const {
    Time latest{0};
    if (one.runs_forward()) {
      int const stage = facts.stage(rank, one.forward_chunk);
      if (stage > 0 && !take(latest, forward, rank, stage - 1, one.forward_microbatch, hop)) return Time{-1};
    }
    if (one.what == form::forward) return latest;
    int const stage = facts.stage(rank, one.backward_chunk);
    if (one.runs_input()) {
      if (!take(latest, forward, rank, stage, one.backward_microbatch, hop)) return Time{-1};
      if (stage + 1 < facts.stages() && !take(latest, input, rank, stage + 1, one.backward_microbatch, hop)) {
        return Time{-1};
      }
    } else if (!take(latest, input, rank, stage, one.backward_microbatch, hop)) {
      return Time{-1};
    }
    return latest;
  }

private:
  constexpr bool take(Time& latest, sequence<Time> const& from, int rank, int stage, int microbatch,
                      Time hop) const {
    Time at = from[facts.cell(stage, microbatch)];
    if (at < Time{0}) return false;
    if (facts.owner(stage) != rank) at = at + hop;
    if (latest < at) latest = at;
    return true;
  }
};

/// Ranks that may be able to go on, first in, first out, each at most once.
class rank_queue {
public:
  constexpr explicit rank_queue(int ranks) : ranks_(ranks), items_(ranks), queued_(ranks) {
    for (int rank = 0; rank < ranks; ++rank) push(rank);
  }
  constexpr bool empty() const { return count_ == 0; }
  constexpr void push(int rank) {
    if (queued_[rank]) return;
    queued_[rank] = true;
    items_[(head_ + count_++) % ranks_] = rank;
  }
  constexpr int pop() {
    int const rank = items_[head_];
    head_ = (head_ + 1) % ranks_;
    --count_;
    queued_[rank] = false;
    return rank;
  }

private:
  int ranks_;
  sequence<int> items_;
  sequence<bool> queued_;
  int head_ = 0, count_ = 0;
};

} // namespace detail

/// Runs `of` with `duration(call)` for each call and `hop` for each message between two ranks. A pair starts when the inputs
/// of both halves are there, and both its outputs leave at its end. A rank holds one call at a time; a send costs its rank
/// nothing.
template <class Time>
STRETTO_COLD constexpr plan_times<Time> replay(plan const& of, auto&& duration, Time hop = Time{0}) {
  plan_facts const& facts = of.facts();
  plan_times<Time> result{detail::sequence<Time>(of.size()), detail::sequence<Time>(of.size()),
                          detail::sequence<long>(facts.ranks)};
  detail::plan_results<Time> results(facts);
  detail::rank_queue waiting(facts.ranks);
  long ran = 0;
  while (!waiting.empty()) {
    int const rank = waiting.pop();
    long& next = result.done[rank];
    for (; next < of.size(rank); ++next, ++ran) {
      call const& one = of.calls(rank)[next];
      Time start = results.ready(rank, one, hop);
      if (start < Time{0}) break;
      long const row = of.first(rank) + next;
      if (next > 0 && start < result.finish[row - 1]) start = result.finish[row - 1];
      Time const finish = start + duration(one);
      result.start[row] = start, result.finish[row] = finish;
      if (result.makespan < finish) result.makespan = finish;
      if (one.runs_forward()) {
        int const stage = facts.stage(rank, one.forward_chunk);
        results.forward[facts.cell(stage, one.forward_microbatch)] = finish;
        if (stage + 1 < facts.stages()) waiting.push(facts.owner(stage + 1));
      }
      if (one.runs_input()) {
        int const stage = facts.stage(rank, one.backward_chunk);
        results.input[facts.cell(stage, one.backward_microbatch)] = finish;
        if (stage > 0) waiting.push(facts.owner(stage - 1));
      }
    }
  }
  result.complete = ran == of.size();
  return result;
}

/// What a call takes when F, I and W of a chunk take one unit each: the unit of the published bubble formulas.
constexpr int unit_duration(call const& one) {
  return (one.runs_forward() ? 1 : 0) + (one.runs_input() ? 1 : 0) + (one.runs_weight() ? 1 : 0);
}

} // namespace v0
} // namespace stretto
