#pragma once

#include <stretto/plan/messages.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

/// A second opinion on plans, written from the definitions and for clarity: it repeats whole passes until nothing moves and
/// shares no code with the checks that it judges.
namespace oracle {

using stretto::call;
using stretto::form;
using stretto::plan_facts;
using stretto::plan_step;
using stretto::step_kind;
using stretto::traffic;

struct lists {
  plan_facts facts;
  std::vector<std::vector<call>> ranks;
  std::vector<int> bounds;
};

inline lists lists_of(stretto::plan const& plan) {
  lists result{plan.facts(), {}, {}};
  for (int rank = 0; rank < plan.facts().ranks; ++rank) {
    result.ranks.emplace_back(plan.calls(rank), plan.calls(rank) + plan.size(rank));
    result.bounds.push_back(plan.bound(rank));
  }
  return result;
}

inline stretto::plan plan_of(lists const& from) {
  std::vector<long> counts;
  for (auto const& calls : from.ranks) counts.push_back(static_cast<long>(calls.size()));
  stretto::plan result(from.facts, counts.data());
  for (int rank = 0; rank < from.facts.ranks; ++rank) {
    auto const at = static_cast<std::size_t>(rank);
    std::copy(from.ranks[at].begin(), from.ranks[at].end(), result.calls(rank));
    result.set_bound(rank, from.bounds[at]);
  }
  return result;
}

inline std::vector<std::vector<plan_step>> steps_of(int ranks, stretto::plan_steps const& from) {
  std::vector<std::vector<plan_step>> result;
  for (int rank = 0; rank < ranks; ++rank)
    result.emplace_back(from.steps(rank), from.steps(rank) + from.size(rank));
  return result;
}

inline stretto::plan_steps pack(std::vector<std::vector<plan_step>> const& from) {
  std::vector<long> counts;
  for (auto const& steps : from) counts.push_back(static_cast<long>(steps.size()));
  stretto::plan_steps result(static_cast<int>(from.size()), counts.data());
  for (std::size_t rank = 0; rank < from.size(); ++rank) {
    std::copy(from[rank].begin(), from[rank].end(), result.steps(static_cast<int>(rank)));
  }
  return result;
}

/// One pass over one (stage, microbatch): 'F', 'I' or 'W'.
struct action {
  char pass;
  int stage, microbatch;
  friend bool operator==(action const&, action const&) = default;
};

/// At most three actions, or what an action needs.
class actions {
public:
  void push_back(action const& one) { items_[count_++] = one; }
  action const* begin() const { return items_.data(); }
  action const* end() const { return items_.data() + count_; }

private:
  std::array<action, 3> items_{};
  std::size_t count_ = 0;
};

inline actions actions_of(plan_facts const& facts, int rank, call const& one) {
  actions result;
  bool const pair = one.what == form::forward_backward;
  if (pair || one.what == form::forward) {
    result.push_back({'F', facts.stage(rank, one.forward_chunk), one.forward_microbatch});
  }
  bool const whole = pair || one.what == form::backward;
  if (whole || one.what == form::backward_input) {
    result.push_back({'I', facts.stage(rank, one.backward_chunk), one.backward_microbatch});
  }
  if (whole || one.what == form::backward_weight) {
    result.push_back({'W', facts.stage(rank, one.backward_chunk), one.backward_microbatch});
  }
  return result;
}

/// What must be finished before an action may start.
inline actions needs_of(plan_facts const& facts, action const& one) {
  actions result;
  if (one.pass == 'F' && one.stage > 0) result.push_back({'F', one.stage - 1, one.microbatch});
  if (one.pass == 'I') {
    result.push_back({'F', one.stage, one.microbatch});
    if (one.stage + 1 < facts.ranks * facts.chunks) result.push_back({'I', one.stage + 1, one.microbatch});
  }
  if (one.pass == 'W') result.push_back({'I', one.stage, one.microbatch});
  return result;
}

/// Whether `need` is the I of the whole B that `one` is the W of.
inline bool own_half(actions const& now, action const& one, action const& need) {
  return one.pass == 'W' && std::find(now.begin(), now.end(), need) != now.end();
}

class finished {
public:
  explicit finished(plan_facts const& facts)
      : microbatches_(facts.microbatches),
        done_(static_cast<std::size_t>(facts.ranks * facts.chunks * microbatches_) * 3) {}
  char& operator[](action const& one) {
    std::size_t const pass = one.pass == 'F' ? 0 : one.pass == 'I' ? 1 : 2;
    return done_[static_cast<std::size_t>(one.stage * microbatches_ + one.microbatch) * 3 + pass];
  }
  std::vector<char> const& all() const { return done_; }

private:
  int microbatches_;
  std::vector<char> done_;
};

/// Every pass exactly once, on the rank of its stage.
inline bool complete(lists const& of) {
  finished seen(of.facts);
  for (std::size_t rank = 0; rank < of.ranks.size(); ++rank) {
    for (call const& one : of.ranks[rank]) {
      for (action const& each : actions_of(of.facts, static_cast<int>(rank), one)) ++seen[each];
    }
  }
  return std::all_of(seen.all().begin(), seen.all().end(), [](char count) { return count == 1; });
}

/// Weight gradients of every stage in ascending microbatch order.
inline bool ascending(lists const& of) {
  std::vector<int> last(static_cast<std::size_t>(of.facts.ranks * of.facts.chunks), -1);
  for (std::size_t rank = 0; rank < of.ranks.size(); ++rank) {
    for (call const& one : of.ranks[rank]) {
      for (action const& each : actions_of(of.facts, static_cast<int>(rank), one)) {
        if (each.pass != 'W') continue;
        int& before = last[static_cast<std::size_t>(each.stage)];
        if (each.microbatch < before) return false;
        before = each.microbatch;
      }
    }
  }
  return true;
}

inline int peak_of(std::vector<call> const& calls) {
  int live = 0, peak = 0;
  for (call const& one : calls) {
    if (one.runs_forward()) peak = std::max(peak, ++live);
    if (one.runs_weight()) --live;
  }
  return peak;
}

/// Whether every call can run, the halves of a pair from inputs that were there before it.
inline bool runs_to_the_end(lists const& of) {
  finished done(of.facts);
  std::vector<std::size_t> next(of.ranks.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < of.ranks.size(); ++rank) {
      if (next[rank] == of.ranks[rank].size()) continue;
      actions const now = actions_of(of.facts, static_cast<int>(rank), of.ranks[rank][next[rank]]);
      bool ready = true;
      for (action const& one : now) {
        for (action const& need : needs_of(of.facts, one)) {
          ready = ready && (done[need] != 0 || own_half(now, one, need));
        }
      }
      if (!ready) continue;
      for (action const& one : now) done[one] = 1;
      ++next[rank];
      moved = true;
    }
  }
  for (std::size_t rank = 0; rank < of.ranks.size(); ++rank) {
    if (next[rank] != of.ranks[rank].size()) return false;
  }
  return true;
}

/// Why the lists are illegal, or nothing.
inline std::string objection(lists const& of) {
  if (!complete(of)) return "incomplete";
  if (!ascending(of)) return "weights out of order";
  for (std::size_t rank = 0; rank < of.ranks.size(); ++rank) {
    if (of.bounds[rank] >= 0 && peak_of(of.ranks[rank]) > of.bounds[rank]) return "too many live";
  }
  return runs_to_the_end(of) ? "" : "stuck";
}

/// The key of a message, the same at both ends.
using key = std::array<int, 3>;
inline key key_of(plan_step const& step) { return {static_cast<int>(step.carries), step.stage, step.number}; }

/// The k-th message of each rank with each other is the opposite of the other's k-th with it.
inline bool mirrored(std::vector<std::vector<plan_step>> const& steps) {
  auto const between = [&](std::size_t rank, std::size_t peer) {
    std::vector<plan_step> result;
    for (plan_step const& one : steps[rank]) {
      if (one.what != step_kind::run && one.peer == static_cast<int>(peer)) result.push_back(one);
    }
    return result;
  };
  for (std::size_t a = 0; a < steps.size(); ++a) {
    for (std::size_t b = 0; b < steps.size(); ++b) {
      auto const mine = between(a, b), theirs = between(b, a);
      if (mine.size() != theirs.size()) return false;
      for (std::size_t i = 0; i < mine.size(); ++i) {
        if (key_of(mine[i]) != key_of(theirs[i]) || mine[i].what == theirs[i].what) return false;
      }
    }
  }
  return true;
}

/// Runs calls and messages together: a call needs what its rank made or received; a send holds what its rank made; with
/// `rendezvous` a send ends only together with its receive, else at once.
inline bool messages_run(lists const& of, std::vector<std::vector<plan_step>> const& steps, bool rendezvous) {
  std::vector<finished> here(steps.size(), finished(of.facts));
  std::vector<std::vector<plan_step>> mail(steps.size());
  std::vector<std::size_t> next(steps.size(), 0);
  auto const carried = [](plan_step const& one) {
    return action{one.carries == traffic::activation ? 'F' : 'I', one.stage, one.number};
  };
  auto const head = [&](std::size_t rank) {
    return next[rank] < steps[rank].size() ? &steps[rank][next[rank]] : nullptr;
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (std::size_t rank = 0; rank < steps.size(); ++rank) {
      plan_step const* const mine = head(rank);
      if (mine == nullptr) continue;
      if (mine->what == step_kind::run) {
        actions const now = actions_of(of.facts, static_cast<int>(rank),
                                       of.ranks[rank][static_cast<std::size_t>(mine->number)]);
        bool ready = true;
        for (action const& one : now) {
          for (action const& need : needs_of(of.facts, one)) {
            ready = ready && (here[rank][need] != 0 || own_half(now, one, need));
          }
        }
        if (!ready) continue;
        for (action const& one : now) here[rank][one] = 1;
      } else if (mine->what == step_kind::send) {
        if (here[rank][carried(*mine)] == 0) return false;
        auto const peer = static_cast<std::size_t>(mine->peer);
        if (rendezvous) {
          plan_step const* const theirs = head(peer);
          if (theirs == nullptr || theirs->what != step_kind::receive || key_of(*theirs) != key_of(*mine) ||
              theirs->peer != static_cast<int>(rank)) {
            continue;
          }
          here[peer][carried(*mine)] = 1;
          ++next[peer];
        } else {
          mail[peer].push_back(*mine);
        }
      } else {
        if (rendezvous) continue; // the sender moves both
        auto const at = std::find_if(mail[rank].begin(), mail[rank].end(),
                                     [&](plan_step const& one) { return key_of(one) == key_of(*mine); });
        if (at == mail[rank].end()) continue;
        here[rank][carried(*mine)] = 1;
        mail[rank].erase(at);
      }
      ++next[rank];
      moved = true;
    }
  }
  for (std::size_t rank = 0; rank < steps.size(); ++rank) {
    if (head(rank) != nullptr || !mail[rank].empty()) return false;
  }
  return true;
}

} // namespace oracle
