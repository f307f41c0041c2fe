#pragma once

// A layer of experts for the cases beside: what its phases compute does not matter here.
#ifdef STRETTO_WITH_EXECUTOR
#include <stretto/adapters/null.hpp>
#include <stretto/executor.hpp>
#else
#include <stretto/check/proof.hpp>
#endif

namespace us {

struct hidden : stretto::value {};
struct tokens : stretto::value {};
struct residual : stretto::value {};
struct expert_in : stretto::value {};
struct expert_out : stretto::value {};
struct routing : stretto::metadata {
  using type = int;
};

/// A phase that can do everything.
template <stretto::phase_kind Kind> struct Whole : stretto::Phase<Kind> {
  void forward(auto&) {}
  void backward_input(auto&) {}
  void backward_weight(auto&) {}
};

struct Attention : Whole<stretto::attn> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<tokens, residual, routing>;
};
struct Dispatch : Whole<stretto::dispatch> {
  using reads = stretto::values<tokens, routing>;
  using writes = stretto::values<expert_in>;
};
struct Experts : Whole<stretto::mlp> {
  using reads = stretto::values<expert_in>;
  using writes = stretto::values<expert_out>;
};
struct Combine : Whole<stretto::combine> {
  using reads = stretto::values<expert_out, residual, routing>;
  using writes = stretto::values<hidden>;
};

struct Layer : stretto::Block<Attention, stretto::Detach, Dispatch, stretto::Detach, Experts, stretto::Detach,
                              Combine> {};

} // namespace us
