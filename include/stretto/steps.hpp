#pragma once

#include <stretto/pipeline.hpp>

#include <vector>

/// From the calls of a plan to the bodies that run: which layer meets which, and where a microbatch keeps its state.
namespace stretto {
inline namespace v0 {

/// A call with the slots of its microbatches: the place in the ring of states that a microbatch has while it is in flight.
struct placed_call {
  call what;
  int forward_slot;
  int backward_slot;
};

/// One body: a layer alone, or two layers side by side (-1: none).
struct body_call {
  form what;
  int forward_layer;
  int backward_layer;
};

/// Splits a call into bodies. The layers of a chunk run from `first(chunk)` up to `first(chunk + 1)`; forward layer k meets
/// the backward layer that is as far from the end, and where the counts differ the rest runs alone.
template <class Layers, class Sink> constexpr void for_each_body(call const& c, Layers const& layers, Sink&& sink) {
  int f = 0, end_f = 0, b = 0, end_b = 0;
  if (c.forward_chunk >= 0) f = layers.first(c.forward_chunk), end_f = layers.first(c.forward_chunk + 1);
  if (c.backward_chunk >= 0) end_b = layers.first(c.backward_chunk), b = layers.first(c.backward_chunk + 1);
  for (; f < end_f && b > end_b; ++f, --b) sink(body_call{form::forward_backward, f, b - 1});
  for (; f < end_f; ++f) sink(body_call{form::forward, f, -1});
  form const alone = c.what == form::forward_backward ? form::backward : c.what;
  for (; b > end_b; --b) sink(body_call{alone, -1, b - 1});
}

/// Gives every microbatch the lowest free slot from its first F to its last B (or W), and says how many slots that takes.
inline std::vector<placed_call> place_calls(std::vector<call> const& calls, int microbatches, int chunks, int& slots) {
  std::vector<placed_call> placed;
  placed.reserve(calls.size());
  std::vector<int> slot(static_cast<unsigned>(microbatches), -1);
  std::vector<int> left(static_cast<unsigned>(microbatches), chunks);
  std::vector<char> taken;
  for (call const& c : calls) {
    placed_call p{c, -1, -1};
    if (c.runs_forward()) {
      int& s = slot[static_cast<unsigned>(c.forward_microbatch)];
      if (s < 0) {
        s = 0;
        while (s < static_cast<int>(taken.size()) && taken[static_cast<unsigned>(s)] != 0) ++s;
        if (s == static_cast<int>(taken.size())) taken.push_back(0);
        taken[static_cast<unsigned>(s)] = 1;
      }
      p.forward_slot = s;
    }
    if (c.runs_input() || c.runs_weight()) {
      unsigned const m = static_cast<unsigned>(c.backward_microbatch);
      p.backward_slot = slot[m];
      if (c.runs_weight() && --left[m] == 0 && slot[m] >= 0) taken[static_cast<unsigned>(slot[m])] = 0;
    }
    placed.push_back(p);
  }
  slots = static_cast<int>(taken.size());
  return placed;
}

}  // namespace v0
}  // namespace stretto
