#pragma once

#include <stretto/check/plan.hpp>
#include <stretto/plan/messages.hpp>

namespace stretto {
inline namespace v0 {

/// What a send waits for: a buffered one for nothing, a rendezvous until its receive is posted. What is legal under
/// rendezvous is legal under every buffering in between.
enum class send_semantics : unsigned char { buffered, rendezvous };

namespace detail {

constexpr plan_diagnosis of_step(fault what, int rank, long at, plan_step const& one) {
  plan_diagnosis result;
  result.what = what, result.rank = rank, result.at = at, result.other = one.peer;
  result.pass = one.what == step_kind::send ? plan_pass::send : plan_pass::receive;
  result.stage = one.stage, result.microbatch = one.number;
  return result;
}

/// Each message once at each end, on the right side of its call, nothing that nobody needs.
class message_census {
public:
  constexpr message_census(plan const& of, plan_steps const& steps)
      : plan_(of), facts_(of.facts()), steps_(steps), state_(2 * facts_.cells()) {}

  constexpr plan_diagnosis check(int rank) {
    long position = 0;
    for (long at = 0; at < steps_.size(rank); ++at) {
      plan_step const& step = steps_.steps(rank)[at];
      if (step.what == step_kind::run) {
        if (step.number != position || position == plan_.size(rank)) return wrong_call(rank, at);
        if (plan_diagnosis const wrong = run(rank, at, plan_.calls(rank)[position++])) return wrong;
      } else if (plan_diagnosis const wrong =
                     step.what == step_kind::send ? send(rank, at, step) : receive(rank, at, step)) {
        return wrong;
      }
    }
    return position == plan_.size(rank) ? plan_diagnosis{} : wrong_call(rank, steps_.size(rank));
  }

  /// After all ranks: whatever was written for another rank has left, and whatever came in was read.
  constexpr plan_diagnosis close() const {
    for (long cell = 0; cell < 2 * facts_.cells(); ++cell) {
      bool const lost = (state_[cell] & (written | sent)) == written;
      if (!lost && (state_[cell] & (received | read)) != received) continue;
      bool const gradient = cell >= facts_.cells();
      long const inside = gradient ? cell - facts_.cells() : cell;
      int const stage = static_cast<int>(inside / facts_.microbatches), from = facts_.owner(stage);
      int const to = facts_.owner(gradient ? stage - 1 : stage + 1);
      plan_step const end{
          lost ? step_kind::send : step_kind::receive, gradient ? traffic::gradient : traffic::activation,
          static_cast<short>(lost ? to : from), stage, static_cast<int>(inside % facts_.microbatches)};
      return of_step(fault::unmatched_message, lost ? from : to, -1, end);
    }
    return {};
  }

private:
  static constexpr unsigned char written = 1, sent = 2, received = 4, read = 8;

  constexpr unsigned char& state(traffic carries, int stage, int microbatch) {
    return state_[message_cell(facts_, carries, stage, microbatch)];
  }
  static constexpr void set(unsigned char& state, unsigned char bit) {
    state = static_cast<unsigned char>(state | bit);
  }

  constexpr plan_diagnosis run(int rank, long at, call const& one) {
    plan_diagnosis wrong;
    for (plan_message const& in : needed_by(facts_, rank, one)) {
      unsigned char& now = state(in.carries, in.stage, in.microbatch);
      if ((now & received) == 0 && !wrong) {
        plan_step const end{step_kind::receive, in.carries, in.from, in.stage, in.microbatch};
        wrong = of_step(listed(rank, at, end) ? fault::misplaced_message : fault::unmatched_message, rank, at,
                        end);
      }
      set(now, read);
    }
    for (plan_message const& out : sent_by(facts_, rank, one))
      set(state(out.carries, out.stage, out.microbatch), written);
    return wrong;
  }
  constexpr bool listed(int rank, long from, plan_step const& end) const {
    for (long at = from; at < steps_.size(rank); ++at) {
      if (steps_.steps(rank)[at] == end) return true;
    }
    return false;
  }
  /// Whether the step names a message that the plan has, with `rank` at this end of it.
  constexpr bool known(int rank, plan_step const& step) const {
    if (step.stage < 0 || step.stage >= facts_.stages() || step.number < 0 ||
        step.number >= facts_.microbatches)
      return false;
    int const next = step.carries == traffic::activation ? step.stage + 1 : step.stage - 1;
    if (next < 0 || next >= facts_.stages()) return false;
    int const from = facts_.owner(step.stage), to = facts_.owner(next);
    if (from == to) return false;
    return step.what == step_kind::send ? from == rank && to == step.peer : to == rank && from == step.peer;
  }
  constexpr plan_diagnosis send(int rank, long at, plan_step const& step) {
    if (!known(rank, step)) return of_step(fault::unmatched_message, rank, at, step);
    unsigned char& now = state(step.carries, step.stage, step.number);
    if ((now & written) == 0) return of_step(fault::misplaced_message, rank, at, step);
    if ((now & sent) != 0) return of_step(fault::unmatched_message, rank, at, step);
    set(now, sent);
    return {};
  }
  constexpr plan_diagnosis receive(int rank, long at, plan_step const& step) {
    if (!known(rank, step)) return of_step(fault::unmatched_message, rank, at, step);
    unsigned char& now = state(step.carries, step.stage, step.number);
    if ((now & received) != 0) return of_step(fault::unmatched_message, rank, at, step);
    set(now, received);
    return {};
  }
  constexpr plan_diagnosis wrong_call(int rank, long at) const {
    plan_diagnosis result;
    result.what = fault::misplaced_message, result.rank = rank, result.at = at;
    return result;
  }

  plan const& plan_;
  plan_facts const& facts_;
  plan_steps const& steps_;
  sequence<unsigned char> state_;
};

/// The k-th message of a rank with a peer is the k-th of the peer with the rank.
constexpr plan_diagnosis check_mirrored(plan_facts const& facts, plan_steps const& steps) {
  sequence<int> place(2 * facts.cells()), count(facts.ranks);
  step_kind const ends[] = {step_kind::send, step_kind::receive};
  for (step_kind const end : ends) {
    for (int rank = 0; rank < facts.ranks; ++rank) {
      for (int peer = 0; peer < facts.ranks; ++peer) count[peer] = 0;
      for (long at = 0; at < steps.size(rank); ++at) {
        plan_step const& step = steps.steps(rank)[at];
        if (step.what == step_kind::run) continue;
        int const mine = count[step.peer]++;
        if (step.what != end) continue;
        int& other = place[message_cell(facts, step.carries, step.stage, step.number)];
        if (end == step_kind::send) other = mine;
        if (other != mine) return of_step(fault::message_order, rank, at, step);
      }
    }
  }
  return {};
}

} // namespace detail

/// Runs the lists as if every send and receive blocked its rank; the first rank that never ends, if one does not.
constexpr plan_diagnosis replay_messages(plan_facts const& facts, plan_steps const& steps,
                                         send_semantics how) {
  detail::sequence<long> next(facts.ranks);
  detail::sequence<bool> sent(2 * facts.cells());
  detail::rank_queue waiting(facts.ranks);
  auto const head = [&](int rank) -> plan_step const* {
    while (next[rank] < steps.size(rank) && steps.steps(rank)[next[rank]].what == step_kind::run)
      ++next[rank];
    return next[rank] < steps.size(rank) ? &steps.steps(rank)[next[rank]] : nullptr;
  };
  while (!waiting.empty()) {
    int const rank = waiting.pop();
    while (plan_step const* const mine = head(rank)) {
      bool& arrived = sent[detail::message_cell(facts, mine->carries, mine->stage, mine->number)];
      if (how == send_semantics::buffered) {
        if (mine->what == step_kind::receive && !arrived) break;
        if (mine->what == step_kind::send) arrived = true;
      } else {
        plan_step const* const other = head(mine->peer);
        if (other == nullptr || other->what == mine->what || other->peer != rank ||
            other->carries != mine->carries || other->stage != mine->stage || other->number != mine->number) {
          break;
        }
        ++next[mine->peer];
      }
      waiting.push(mine->peer);
      ++next[rank];
    }
  }
  for (int rank = 0; rank < facts.ranks; ++rank) {
    if (plan_step const* const stuck = head(rank))
      return detail::of_step(fault::message_deadlock, rank, next[rank], *stuck);
  }
  return {};
}

/// The whole proof of lowered lists, for a plan that passed `check_plan`: matching, places, mirrored order, no circle.
constexpr plan_diagnosis check_messages(plan const& of, plan_steps const& steps) {
  detail::message_census census(of, steps);
  for (int rank = 0; rank < of.facts().ranks; ++rank) {
    if (plan_diagnosis const wrong = census.check(rank)) return wrong;
  }
  if (plan_diagnosis const wrong = census.close()) return wrong;
  if (plan_diagnosis const wrong = detail::check_mirrored(of.facts(), steps)) return wrong;
  return replay_messages(of.facts(), steps, send_semantics::rendezvous);
}

} // namespace v0
} // namespace stretto
