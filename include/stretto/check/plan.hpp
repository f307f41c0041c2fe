#pragma once

#include <stretto/plan/replay.hpp>
#include <stretto/rules.hpp>

/// Proofs of plans on values: the same functions answer when a pipeline is compiled (a small grid of sizes), when an
/// executor or a picture is made (the user's own sizes), and in tests.
namespace stretto {
inline namespace v0 {

/// What a call does to one (stage, microbatch); names a place in a sentence.
enum class plan_pass : unsigned char { none, forward, backward, input, weight, send, receive };

/// The first thing that is wrong with a plan. `at` is the position in the calls (or steps) of `rank`; `stage` and
/// `microbatch` say what it works on; `found` and `wanted` are the two numbers of a size fault, `other` a second rank.
struct plan_diagnosis {
  fault what = fault::none;
  int rank = -1;
  long at = -1;
  plan_pass pass = plan_pass::none;
  int stage = -1, microbatch = -1;
  long found = -1, wanted = -1;
  int other = -1;

  constexpr explicit operator bool() const { return what != fault::none; }
};

/// Whether the pipeline can serve these sizes at all. Comes before everything: nothing is built from refused sizes.
STRETTO_COLD constexpr plan_diagnosis check_sizes(plan_facts const& facts) {
  auto const size = [](fault what, long found, long wanted) {
    plan_diagnosis wrong;
    wrong.what = what, wrong.found = found, wrong.wanted = wanted;
    return wrong;
  };
  if (facts.ranks < 1 || facts.ranks > plan_limits::ranks) {
    return size(fault::size_out_of_range, facts.ranks, plan_limits::ranks);
  }
  if (facts.chunks < 1 || facts.chunks > plan_limits::chunks) {
    return size(fault::size_out_of_range, facts.chunks, plan_limits::chunks);
  }
  if (facts.microbatches > plan_limits::microbatches) {
    return size(fault::size_out_of_range, facts.microbatches, plan_limits::microbatches);
  }
  if (facts.chunks < facts.least_chunks || facts.chunks > facts.most_chunks) {
    return size(fault::unserved_chunks, facts.chunks, facts.most_chunks);
  }
  int const least = facts.least_microbatches > 1 ? facts.least_microbatches : 1;
  if (facts.microbatches < least) return size(fault::too_few_microbatches, facts.microbatches, least);
  if (facts.multiple > 1 && facts.microbatches % facts.multiple != 0) {
    return size(fault::not_a_multiple, facts.microbatches, facts.multiple);
  }
  if (facts.cells() > plan_limits::cells)
    return size(fault::plan_too_large, facts.cells(), plan_limits::cells);
  return {};
}

namespace detail {

/// Walks the calls of one rank: every pass there, once, in an order that the rank itself can follow.
class rank_checker {
public:
  constexpr rank_checker(plan const& of, int rank)
      : plan_(of), facts_(of.facts()), rank_(rank),
        seen_(static_cast<long>(facts_.chunks) * facts_.microbatches) {}

  STRETTO_COLD constexpr plan_diagnosis census() {
    for (long at = 0; at < plan_.size(rank_); ++at) {
      call const& one = plan_.calls(rank_)[at];
      if (!in_range(one)) return wrong(fault::no_such_place, at, plan_pass::none, -1, -1);
      if (one.what == form::forward_backward) {
        if (!facts_.pairs) return of_forward(fault::undeclared_form, at);
        if (one.forward_microbatch == one.backward_microbatch) return of_forward(fault::dependent_pair, at);
      }
      if (one.runs_input() != one.runs_weight() && !facts_.splits)
        return of_backward(fault::undeclared_form, at);
      if (one.runs_forward() && !mark(one.forward_chunk, one.forward_microbatch, did_forward)) {
        return of_forward(fault::doubled, at);
      }
      if (one.runs_input() && !mark(one.backward_chunk, one.backward_microbatch, did_input)) {
        return of_backward(fault::doubled, at);
      }
      if (one.runs_weight() && !mark(one.backward_chunk, one.backward_microbatch, did_weight)) {
        return of_backward(fault::doubled, at);
      }
    }
    for (int chunk = 0; chunk < facts_.chunks; ++chunk) {
      for (int m = 0; m < facts_.microbatches; ++m) {
        int const did = seen_[cell(chunk, m)];
        plan_pass const lost = (did & did_forward) == 0  ? plan_pass::forward
                               : (did & did_input) == 0  ? plan_pass::input
                               : (did & did_weight) == 0 ? plan_pass::weight
                                                         : plan_pass::none;
        if (lost != plan_pass::none) return wrong(fault::missing, -1, lost, chunk, m);
      }
    }
    return {};
  }

  /// Order within the rank, and live activations: from F to the end of W, because W reads the inputs of the layers.
  STRETTO_COLD constexpr plan_diagnosis order() {
    sequence<int> last(facts_.chunks, -1);
    for (unsigned char& did : seen_) did = 0;
    int const bound = plan_.bound(rank_);
    int live = 0;
    for (long at = 0; at < plan_.size(rank_); ++at) {
      call const& one = plan_.calls(rank_)[at];
      if (one.runs_input()) {
        if ((seen_[cell(one.backward_chunk, one.backward_microbatch)] & did_forward) == 0) {
          return of_backward(fault::too_early, at);
        }
        mark(one.backward_chunk, one.backward_microbatch, did_input);
      }
      if (one.runs_weight()) {
        if ((seen_[cell(one.backward_chunk, one.backward_microbatch)] & did_input) == 0) {
          return of_backward(fault::too_early, at);
        }
        if (one.backward_microbatch < last[one.backward_chunk]) {
          plan_diagnosis result = of_backward(fault::weight_order, at);
          result.found = last[one.backward_chunk];
          return result;
        }
        last[one.backward_chunk] = one.backward_microbatch;
      }
      if (one.runs_forward()) {
        mark(one.forward_chunk, one.forward_microbatch, did_forward);
        if (++live > bound && bound >= 0) {
          plan_diagnosis result = of_forward(fault::too_many_live, at);
          result.found = live, result.wanted = bound;
          return result;
        }
      }
      if (one.runs_weight()) --live;
    }
    return {};
  }

  /// A diagnosis that names what call `at` of the rank does.
  constexpr plan_diagnosis of_call(fault what, long at) const {
    return plan_.calls(rank_)[at].runs_forward() ? of_forward(what, at) : of_backward(what, at);
  }

private:
  static constexpr unsigned char did_forward = 1, did_input = 2, did_weight = 4;

  constexpr long cell(int chunk, int microbatch) const {
    return static_cast<long>(chunk) * facts_.microbatches + microbatch;
  }
  constexpr bool mark(int chunk, int microbatch, unsigned char pass) {
    unsigned char& did = seen_[cell(chunk, microbatch)];
    if ((did & pass) != 0) return false;
    did = static_cast<unsigned char>(did | pass);
    return true;
  }
  constexpr bool inside(int chunk, int microbatch) const {
    return chunk >= 0 && chunk < facts_.chunks && microbatch >= 0 && microbatch < facts_.microbatches;
  }
  constexpr bool in_range(call const& one) const {
    if (one.runs_forward() && !inside(one.forward_chunk, one.forward_microbatch)) return false;
    return one.what == form::forward || inside(one.backward_chunk, one.backward_microbatch);
  }
  constexpr plan_diagnosis wrong(fault what, long at, plan_pass pass, int chunk, int microbatch) const {
    plan_diagnosis result;
    result.what = what, result.rank = rank_, result.at = at, result.pass = pass,
    result.microbatch = microbatch;
    result.stage = chunk < 0 ? -1 : facts_.stage(rank_, chunk);
    return result;
  }
  constexpr plan_diagnosis of_forward(fault what, long at) const {
    call const& one = plan_.calls(rank_)[at];
    return wrong(what, at, plan_pass::forward, one.forward_chunk, one.forward_microbatch);
  }
  STRETTO_COLD constexpr plan_diagnosis of_backward(fault what, long at) const {
    call const& one = plan_.calls(rank_)[at];
    plan_pass const pass = one.runs_backward() ? plan_pass::backward
                           : one.runs_input()  ? plan_pass::input
                                               : plan_pass::weight;
    return wrong(what, at, pass, one.backward_chunk, one.backward_microbatch);
  }

  plan const& plan_;
  plan_facts const& facts_;
  int rank_;
  sequence<unsigned char> seen_; ///< what has run, by cell
};

} // namespace detail

/// The whole proof of a plan at the level of calls: sizes; on each rank every pass once, in order, weight gradients of a
/// chunk ascending, live activations within the bound; over all ranks no circle of waits.
STRETTO_COLD constexpr plan_diagnosis check_plan(plan const& of) {
  if (plan_diagnosis const wrong = check_sizes(of.facts())) return wrong;
  for (int rank = 0; rank < of.facts().ranks; ++rank) {
    detail::rank_checker checker(of, rank);
    if (plan_diagnosis const wrong = checker.census()) return wrong;
    if (plan_diagnosis const wrong = checker.order()) return wrong;
  }
  auto const times = replay<int>(of, unit_duration);
  if (times.complete) return {};
  int rank = 0;
  while (times.done[rank] == of.size(rank)) ++rank;
  return detail::rank_checker(of, rank).of_call(fault::deadlock, times.done[rank]);
}

/// The same for a pipeline type at these sizes; `chunks` 0 takes the pipeline's own number.
template <pipeline Pipeline>
constexpr plan_diagnosis check_plan(int ranks, int microbatches, int chunks = 0) {
  plan_facts const facts = facts_of<Pipeline>(ranks, microbatches, chunks);
  if (plan_diagnosis const wrong = check_sizes(facts)) return wrong;
  return check_plan(lay_out<Pipeline>(facts));
}

/// What is wrong with a pipeline type, and the sizes at which it shows; or, if nothing was found, the first sizes that are too
/// large to look at when it is compiled.
struct plan_finding : plan_diagnosis {
  int ranks = -1, microbatches = -1;
  bool ends_early = false;
};

/// A small grid of sizes, cheap enough for every compilation: what a pipeline type is held to before any size is known.
///
/// It ends after a thousand (stage, microbatch), which is two thousand ops: compilers stop an evaluation after about twice as
/// many (clang's million steps). The finding says so, and the sizes beyond are proved when a plan is made.
template <pipeline Pipeline> constexpr plan_finding prove() {
  long left = 1000;
  for (int ranks = 1; ranks <= 3; ++ranks) {
    int const asked = microbatch_multiple<Pipeline>(ranks), multiple = asked > 1 ? asked : 1;
    int least = Pipeline::min_microbatches(ranks) > 1 ? Pipeline::min_microbatches(ranks) : 1;
    least = (least + multiple - 1) / multiple * multiple;
    for (int extra = 0; extra <= 2; ++extra) {
      plan_facts const facts = facts_of<Pipeline>(ranks, least + extra * multiple);
      plan_diagnosis wrong = check_sizes(facts);
      if (!wrong) {
        left -= facts.cells();
        if (left < 0) return {{}, ranks, facts.microbatches, true};
        wrong = check_plan(lay_out<Pipeline>(facts));
      }
      if (wrong) return {wrong, ranks, facts.microbatches, false};
    }
  }
  return {};
}

/// Whether members `mine` and `theirs` of one expert group, at ranks `rank` and `other` of their own plans, issue expert
/// communication in one order. The dispatches and combines of a call are in the order of its body, so the calls decide.
/// Members that are stages of the same pipeline replica cannot share a group: their orders differ by construction.
constexpr plan_diagnosis check_expert_group(plan const& mine, int rank, plan const& theirs, int other) {
  long const common = mine.size(rank) < theirs.size(other) ? mine.size(rank) : theirs.size(other);
  long at = 0;
  while (at < common && mine.calls(rank)[at] == theirs.calls(other)[at]) ++at;
  if (at == mine.size(rank) && at == theirs.size(other)) return {};
  plan_diagnosis result;
  result.what = fault::group_order, result.rank = rank, result.at = at, result.other = other;
  return result;
}

} // namespace v0
} // namespace stretto
