#pragma once

#include <stretto/plan/replay.hpp>

namespace stretto {
inline namespace v0 {

/// What a message between two ranks carries.
enum class traffic : unsigned char {
  activation, ///< the output of F, to the next stage
  gradient ///< the input gradient, to the stage before
};

enum class step_kind : unsigned char { run, send, receive };

/// One entry of a rank's list: a call, or one end of a message. Messages are keyed by (traffic, producing stage,
/// microbatch) at both ends.
struct plan_step {
  step_kind what;
  traffic carries; ///< of a message
  short peer; ///< the rank at the other end of a message
  int stage; ///< of a message: the stage that produced it
  int number; ///< of a message: its microbatch; of a call: its position in the calls of the rank

  friend constexpr bool operator==(plan_step const&, plan_step const&) = default;
};

/// The lists of all ranks: the calls of a plan with the messages they need.
class plan_steps {
public:
  constexpr plan_steps(int ranks, long const* counts) : first_(ranks + 1L) {
    for (int rank = 0; rank < ranks; ++rank) first_[rank + 1] = first_[rank] + counts[rank];
    steps_ = detail::sequence<plan_step>(first_[ranks]);
  }
  constexpr long size(int rank) const { return first_[rank + 1] - first_[rank]; }
  constexpr plan_step* steps(int rank) { return steps_.data() + first_[rank]; }
  constexpr plan_step const* steps(int rank) const { return steps_.data() + first_[rank]; }

private:
  detail::sequence<long> first_;
  detail::sequence<plan_step> steps_;
};

namespace detail {

struct plan_message {
  traffic carries;
  short from, to;
  int stage, microbatch;
};

/// The messages at one end of a call: at most one of F and one of B, in this order.
struct call_messages {
  plan_message all[2] = {};
  int count = 0;

  constexpr plan_message const* begin() const { return all; }
  constexpr plan_message const* end() const { return all + count; }
  /// None between two stages of one rank, and none beyond the ends of the model.
  constexpr void add(plan_facts const& facts, traffic carries, int stage, int next, int microbatch) {
    if (stage < 0 || stage >= facts.stages() || next < 0 || next >= facts.stages()) return;
    int const from = facts.owner(stage), to = facts.owner(next);
    if (from != to)
      all[count++] = {carries, static_cast<short>(from), static_cast<short>(to), stage, microbatch};
  }
};

/// What `one` on `rank` sends.
STRETTO_COLD constexpr call_messages sent_by(plan_facts const& facts, int rank, call const& one) {
  call_messages sent;
  if (one.runs_forward()) {
    int const stage = facts.stage(rank, one.forward_chunk);
    sent.add(facts, traffic::activation, stage, stage + 1, one.forward_microbatch);
  }
  if (one.runs_input()) {
    int const stage = facts.stage(rank, one.backward_chunk);
    sent.add(facts, traffic::gradient, stage, stage - 1, one.backward_microbatch);
  }
  return sent;
}

/// What `one` on `rank` must have received.
STRETTO_COLD constexpr call_messages needed_by(plan_facts const& facts, int rank, call const& one) {
  call_messages needed;
  if (one.runs_forward()) {
    int const stage = facts.stage(rank, one.forward_chunk);
    needed.add(facts, traffic::activation, stage - 1, stage, one.forward_microbatch);
  }
  if (one.runs_input()) {
    int const stage = facts.stage(rank, one.backward_chunk);
    needed.add(facts, traffic::gradient, stage + 1, stage, one.backward_microbatch);
  }
  return needed;
}

/// Row of a message in a table of all of them.
constexpr long message_cell(plan_facts const& facts, traffic carries, int stage, int microbatch) {
  return facts.cell(stage, microbatch) + (carries == traffic::gradient ? facts.cells() : 0);
}

/// The messages of a plan in the order of the times at which they are ready, ranks breaking ties.
struct message_order {
  sequence<plan_message> sorted;
  sequence<int> place; ///< by message_cell: where in `sorted`
  long count = 0;

  STRETTO_COLD constexpr explicit message_order(plan const& of) : place(2 * of.facts().cells()) {
    plan_facts const& facts = of.facts();
    auto const times = replay<int>(of, unit_duration);
    sequence<int> begin(times.makespan + 2L);
    for (int rank = 0; rank < facts.ranks; ++rank)
      for (long at = 0; at < of.size(rank); ++at) {
        int const sent = sent_by(facts, rank, of.calls(rank)[at]).count;
        begin[times.finish[of.first(rank) + at] + 1] += sent, count += sent;
      }
    for (int time = 0; time <= times.makespan; ++time) begin[time + 1] += begin[time];
    sorted = sequence<plan_message>(count);
    for (int rank = 0; rank < facts.ranks; ++rank)
      for (long at = 0; at < of.size(rank); ++at)
        for (plan_message const& one : sent_by(facts, rank, of.calls(rank)[at])) {
          int const next = begin[times.finish[of.first(rank) + at]]++;
          sorted[next] = one;
          place[message_cell(facts, one.carries, one.stage, one.microbatch)] = next;
        }
  }
};

} // namespace detail

/// Adds the messages to a plan that passed `check_plan`.
///
/// A send stands right behind the call that writes it. A receive stands as late as two rules allow: before the call that
/// reads it, and before every message of the rank that is ready later (counted with F = I = W = 1). So all lists follow one
/// order of messages: the two ends of a pair agree, no circle of waits is possible even where every send blocks until its
/// receive is posted, and a receive never stands in front of a send that is ready before it (pytorch/pytorch issues 172668
/// and 188833 tell what the early and the late choice cost). Stages of one rank exchange nothing.
STRETTO_COLD constexpr plan_steps lower_messages(plan const& of) {
  plan_facts const& facts = of.facts();
  detail::message_order const order(of);
  detail::sequence<long> counts(facts.ranks), inbox(facts.ranks + 1L);
  for (int rank = 0; rank < facts.ranks; ++rank) counts[rank] = of.size(rank);
  for (long i = 0; i < order.count; ++i) {
    ++counts[order.sorted[i].from], ++counts[order.sorted[i].to], ++inbox[order.sorted[i].to + 1L];
  }
  for (int rank = 0; rank < facts.ranks; ++rank) inbox[rank + 1L] += inbox[rank];
  detail::sequence<int> incoming(order.count);
  {
    detail::sequence<long> fill(facts.ranks);
    for (int i = 0; i < order.count; ++i) {
      short const to = order.sorted[i].to;
      incoming[inbox[to] + fill[to]++] = i;
    }
  }

  plan_steps result(facts.ranks, counts.data());
  for (int rank = 0; rank < facts.ranks; ++rank) {
    plan_step* next = result.steps(rank);
    long arriving = inbox[rank];
    auto const receive_up_to = [&](int last) {
      for (; arriving < inbox[rank + 1L] && incoming[arriving] <= last; ++arriving) {
        detail::plan_message const& one = order.sorted[incoming[arriving]];
        *next++ = {step_kind::receive, one.carries, one.from, one.stage, one.microbatch};
      }
    };
    auto const place = [&](detail::plan_message const& one) {
      return order.place[detail::message_cell(facts, one.carries, one.stage, one.microbatch)];
    };
    for (long at = 0; at < of.size(rank); ++at) {
      call const& one = of.calls(rank)[at];
      for (detail::plan_message const& in : detail::needed_by(facts, rank, one)) receive_up_to(place(in));
      *next++ = {step_kind::run, traffic::activation, -1, -1, static_cast<int>(at)};
      for (detail::plan_message const& out : detail::sent_by(facts, rank, one)) {
        receive_up_to(place(out));
        *next++ = {step_kind::send, out.carries, out.to, out.stage, out.microbatch};
      }
    }
  }
  return result;
}

} // namespace v0
} // namespace stretto
