#pragma once

#include <stretto/adapter.hpp>
#include <stretto/plan/messages.hpp>

/// From the list of a rank to the bodies that run: which layer meets which, and where a microbatch keeps its state.
namespace stretto {
inline namespace v0 {
namespace detail {

/// One entry of a rank's plan with the slots of its microbatches: the place in the ring of states that a microbatch has
/// while it is in flight. A call, or the receive of a message for `chunk`. Sends have no entry: they leave from inside the
/// call that makes them.
struct placed_step {
  call what{};
  int forward_slot = -1;
  int backward_slot = -1;
  bool is_receive = false;
  message arriving{};
  int chunk = -1;
};

/// One body: a layer alone, or two layers side by side (-1: none).
struct body_call {
  form what;
  int forward_layer;
  int backward_layer;
};

/// Splits a call into bodies. The layers of a chunk run from `first(chunk)` up to `first(chunk + 1)`; forward layer k meets
/// the backward layer that is as far from the end, and where the counts differ the rest runs alone. Layers that begin or end
/// the model (`pairs(layer)` is false: an embedding, a head) run alone, since in a pair they would shift all others by one
/// (simulated, interleaved_ep at 8 ranks and 32 microbatches: 1.37 of ideal instead of 1.29).
template <class Layers, class Pairs, class Sink>
constexpr void for_each_body(call const& c, Layers const& layers, Pairs&& pairs, Sink&& sink) {
  int f = 0, end_f = 0, b = 0, end_b = 0;
  if (c.forward_chunk >= 0) f = layers.first(c.forward_chunk), end_f = layers.first(c.forward_chunk + 1);
  if (c.backward_chunk >= 0) end_b = layers.first(c.backward_chunk), b = layers.first(c.backward_chunk + 1);
  form const alone = c.what == form::forward_backward ? form::backward : c.what;
  if (c.what == form::forward_backward) {
    for (; f < end_f && !pairs(f); ++f) sink(body_call{form::forward, f, -1});
    for (; b > end_b && !pairs(b - 1); --b) sink(body_call{alone, -1, b - 1});
    for (; f < end_f && b > end_b && pairs(f) && pairs(b - 1); ++f, --b)
      sink(body_call{form::forward_backward, f, b - 1});
  }
  for (; f < end_f; ++f) sink(body_call{form::forward, f, -1});
  for (; b > end_b; --b) sink(body_call{alone, -1, b - 1});
}

/// Gives every microbatch the lowest free slot from its first receive or F to its last B (or W).
class slot_ring {
public:
  slot_ring(int microbatches, int chunks) : slot_(microbatches, -1), left_(microbatches, chunks) {}

  STRETTO_COLD int take(int microbatch) {
    int& s = slot_[microbatch];
    if (s >= 0) return s;
    s = 0;
    while (s < size() && taken_[s] != 0) ++s;
    if (s == size()) taken_.push_back(0);
    taken_[s] = 1;
    return s;
  }
  /// A chunk has run its last pass of this microbatch.
  void finish_chunk(int microbatch) {
    if (--left_[microbatch] == 0) taken_[slot_[microbatch]] = 0;
  }
  /// How many microbatches are in flight at once, at most.
  int size() const { return static_cast<int>(taken_.size()); }

private:
  sequence<int> slot_, left_;
  sequence<char> taken_;
};

/// What one rank runs and receives, and how many slots that takes.
struct placed_steps {
  sequence<placed_step> steps;
  int slots = 0;
};

/// The list of one rank of a proved plan, with slots.
STRETTO_COLD inline placed_steps place_steps(plan const& of, plan_steps const& lists, int rank) {
  plan_facts const& facts = of.facts();
  placed_steps placed;
  placed.steps.reserve(lists.size(rank));
  slot_ring ring(facts.microbatches, facts.chunks);
  for (long i = 0; i < lists.size(rank); ++i) {
    plan_step const& step = lists.steps(rank)[i];
    placed_step p;
    if (step.what == step_kind::send) continue;
    if (step.what == step_kind::receive) {
      bool const gradient = step.carries == traffic::gradient;
      p.is_receive = true;
      p.arriving = {gradient, step.stage, step.number, 0, step.peer};
      p.chunk = chunk_of(facts.ranks, gradient ? step.stage - 1 : step.stage + 1);
      (gradient ? p.backward_slot : p.forward_slot) = ring.take(step.number);
    } else {
      p.what = of.calls(rank)[step.number];
      if (p.what.runs_forward()) p.forward_slot = ring.take(p.what.forward_microbatch);
      if (p.what.runs_input() || p.what.runs_weight())
        p.backward_slot = ring.take(p.what.backward_microbatch);
      if (p.what.runs_weight()) ring.finish_chunk(p.what.backward_microbatch);
    }
    placed.steps.push_back(p);
  }
  placed.slots = ring.size();
  return placed;
}

} // namespace detail
} // namespace v0
} // namespace stretto
