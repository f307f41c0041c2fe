#pragma once

#include <stretto/phase.hpp>

#include <type_traits>

/// What a layer policy writes in: the order of the ops of two layers, one forward and one backward.
namespace stretto {
inline namespace v0 {

/// "This pass of the phases of this kind", as a policy says it.
struct request {
  phase_kind kind = phase_kind::attn;
  pass what = pass::forward;
  lane on = lane::compute;
};

/// The forward side of a pair.
struct forward_side {
  constexpr request forward(phase_kind kind) const { return {kind, pass::forward}; }
};

/// The backward side of a pair. Without `SplitDW`, or for a phase without weights, `input` is the whole backward and
/// `weight` is nothing.
struct backward_side {
  constexpr request backward(phase_kind kind) const { return {kind, pass::backward}; }
  constexpr request input(phase_kind kind) const { return {kind, pass::backward_input}; }
  constexpr request weight(phase_kind kind) const { return {kind, pass::backward_weight}; }
};

/// Collects the order of a policy. The verb is the lane, the order of the lines is the order in which the host issues
/// the ops. Kinds that a block does not have vanish; a lone forward or backward is the same order without the other
/// side. Waits are not written: they follow from what the phases read and write.
class pair_builder {
public:
  static constexpr int capacity = 64;
  forward_side f{}; ///< forward of one microbatch
  backward_side b{}; ///< backward of another

  template <class... Requests> constexpr void compute(Requests... r) { (add(r, lane::compute), ...); }
  template <class... Requests> constexpr void comm(Requests... r) { (add(r, lane::comm), ...); }

  constexpr int size() const { return size_; }
  constexpr request const& operator[](int i) const { return requests_[i]; }

private:
  constexpr void add(request r, lane on) {
    r.on = on;
    if (size_ < capacity) requests_[size_] = r;
    ++size_;
  }
  request requests_[capacity] = {};
  int size_ = 0;
};

namespace detail {

template <class Policy>
concept orders_pairs = requires(pair_builder& p) {
  Policy::pair(p);
};
template <class Policy>
concept orders_forwards = requires(pair_builder& p) {
  Policy::forward(p);
};
template <class Policy>
concept orders_backwards = requires(pair_builder& p) {
  Policy::backward(p);
};

/// Whether a policy has members of these names; see `has_named_members` for how that is asked.
template <class Policy> struct has_named_orders {
  struct fallback {
    int forward, backward;
  };
  struct both : Policy, fallback {};
  static constexpr bool forward = !requires { &both::forward; };
  static constexpr bool backward = !requires { &both::backward; };
};
/// The order is known when it is compiled, and no order that the policy names is passed over.
template <class Policy> constexpr bool orders_all() {
  pair_builder p;
  Policy::pair(p);
  if constexpr (orders_forwards<Policy>)
    Policy::forward(p);
  else if constexpr (!std::is_final_v<Policy>)
    if (has_named_orders<Policy>::forward) return false;
  if constexpr (orders_backwards<Policy>)
    Policy::backward(p);
  else if constexpr (!std::is_final_v<Policy>)
    if (has_named_orders<Policy>::backward) return false;
  return true;
}
template <class Policy>
concept has_constant_orders = requires {
  typename std::bool_constant<orders_all<Policy>()>;
};

} // namespace detail

/// A layer policy: a type that orders one layer's forward beside another layer's backward. It may also order a lone
/// forward and a lone backward (`forward(pair_builder&)`, `backward(pair_builder&)`). All are static and constexpr.
template <class Policy>
concept layer_policy = detail::orders_pairs<Policy> && detail::has_constant_orders<Policy> &&
    detail::orders_all<Policy>();

} // namespace v0
} // namespace stretto
