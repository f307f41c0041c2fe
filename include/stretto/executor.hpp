#pragma once

#include <stretto/body_code.hpp>
#include <stretto/layers.hpp>
#include <stretto/lower.hpp>
#include <stretto/proof.hpp>

#include <memory>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace stretto {
inline namespace v0 {

/// What an executor is made for, beyond its type.
struct sizes {
  int microbatches = 1;
};

/// Skips the proofs of a schedule: for tests that break a program on purpose.
struct unproved {};

/// A schedule joined to adapters and layers: calling it runs one step over all microbatches. Everything is allocated when
/// it is made. One rank: the layers of all chunks follow each other, the gradient starts at the objective of the last.
///
/// Throws `std::invalid_argument`, with the sentence of the broken rule, if the schedule cannot serve these layers and
/// sizes. A step throws what `drain` of the lanes throws; every state in flight is given back first, so that a new step
/// may follow.
template <class S, class Tensors, class Lanes> class executor {
  using model = typename S::model;
  using tensor = typename Tensors::tensor;
  using event = typename Lanes::event;
  using context = detail::body_context<Tensors, Lanes>;
  static constexpr int types = model::count;

  template <class Sequence> struct slots_of;
  template <int... K> struct slots_of<std::integer_sequence<int, K...>> {
    using type = std::tuple<std::vector<slot<model, K, Tensors>>...>;
  };

 public:
  executor(S, backend<Tensors, Lanes> adapters, layer_list<model>& layers, sizes wanted)
      : executor(unproved{}, S{}, adapters, layers, wanted) {
    [[maybe_unused]] proof<S> const holds{};
    if (diagnosis const d = table_.check()) throw std::invalid_argument(detail::explain<S>(d, table_));
  }

  executor(unproved, S, backend<Tensors, Lanes> adapters, layer_list<model>& layers, sizes wanted)
      : tensors_(adapters.tensors), lanes_(adapters.lanes), layers_(layers) {
    if (layers.chunks() != S::rank_plan::chunks) throw std::invalid_argument(STRETTO_E22);
    if (wanted.microbatches < S::rank_plan::min_microbatches(1)) throw std::invalid_argument(STRETTO_E23);
    std::vector<call> calls;
    S::rank_plan::run(1, 0, wanted.microbatches, layers.chunks(), [&calls](call const& c) { calls.push_back(c); });
    calls_ = place_calls(calls, wanted.microbatches, layers.chunks(), slots_);
    table_ = lower<S>(calls_, layers, slots_);
    make_states(std::make_integer_sequence<int, types>{});
    body_events_ = std::make_unique<event[]>(detail::max_events);
    port_events_ = std::make_unique<event[]>(static_cast<unsigned>(2 * slots_ + 1));
    forward_ports_.resize(static_cast<unsigned>(slots_));
    backward_ports_.resize(static_cast<unsigned>(slots_));
  }

  executor(executor const&) = delete;
  executor& operator=(executor const&) = delete;

  /// Runs one step.
  void operator()() {
    for (detail::port<event>& p : forward_ports_) p = nothing();
    for (placed_call const& p : calls_) {
      if (p.what.runs_input() && p.what.backward_chunk == layers_.chunks() - 1)
        backward_ports_[static_cast<unsigned>(p.backward_slot)] = forward_ports_[static_cast<unsigned>(p.backward_slot)];
      if (p.what.runs_forward() && p.what.forward_chunk == 0)
        forward_ports_[static_cast<unsigned>(p.forward_slot)] = nothing();
      for_each_body(p.what, layers_, [this, &p](body_call const& body) { run(body, p); });
    }
    try {
      lanes_.drain();
    } catch (...) {
      give_back(std::make_integer_sequence<int, types>{});
      throw;
    }
  }

  /// The whole step as one table: what this executor issues, row by row.
  flat_table const& table() const { return table_; }

 private:
  detail::port<event> nothing() const { return {&port_events_[0], lane::compute}; }

  boundary<tensor>& state_of(int layer, int slot) {
    return *states_[static_cast<unsigned>(slot * (layers_.size() + 1) + layer)];
  }

  template <int... K> void make_states(std::integer_sequence<int, K...>) {
    unsigned const n = static_cast<unsigned>(slots_);
    ((std::get<K>(slot_storage_) = std::vector<slot<model, K, Tensors>>(n * layers_.template of_type<K>().size())), ...);
    ends_ = std::vector<boundary<tensor>>(n);
    states_.resize(n * static_cast<unsigned>(layers_.size() + 1));
    phases_.resize(static_cast<unsigned>(layers_.size()));
    for (int s = 0; s < slots_; ++s) {
      states_[static_cast<unsigned>(s * (layers_.size() + 1) + layers_.size())] = &ends_[static_cast<unsigned>(s)];
      for (int l = 0; l < layers_.size(); ++l)
        ((layers_[l].type == K ? place_state<K>(l, s) : void()), ...);
      for (int l = 0; l < layers_.size(); ++l)
        ((layers_[l].type == K ? hand_over<K>(l, s) : void()), ...);
    }
  }
  template <int K> void place_state(int l, int s) {
    auto& same = layers_.template of_type<K>();
    unsigned const index = static_cast<unsigned>(layers_[l].index);
    phases_[static_cast<unsigned>(l)] = &same[index];
    states_[static_cast<unsigned>(s * (layers_.size() + 1) + l)] =
        &std::get<K>(slot_storage_)[static_cast<unsigned>(s) * same.size() + index];
  }
  /// The layer behind reads where this one writes; a chain value that a layer does not write passes it by.
  template <int K> void hand_over(int l, int s) {
    constexpr block_facts const& f = dataflow_of<typename model::template block<K>>::value;
    auto& state = static_cast<slot<model, K, Tensors>&>(state_of(l, s));
    for (int v = 0; v < f.roots; ++v)
      if (int const c = chain_of<model>::value.find(f.root[v]); c >= 0 && f.root_is_output[v])
        state_of(l + 1, s).value[c] = &state.root[v];
  }
  template <int... K> void give_back(std::integer_sequence<int, K...>) {
    for (boundary<tensor>& end : ends_) end = {};
    ((std::get<K>(slot_storage_) =
          std::vector<slot<model, K, Tensors>>(std::get<K>(slot_storage_).size())), ...);
    make_states(std::integer_sequence<int, K...>{});
  }

  typename context::side side(int layer, int slot, int microbatch, bool forward) {
    unsigned const s = static_cast<unsigned>(slot);
    return {phases_[static_cast<unsigned>(layer)], &state_of(layer, slot), &state_of(layer + 1, slot),
            forward ? &forward_ports_[s] : &backward_ports_[s],
            &port_events_[forward ? 1 + 2 * s : 2 + 2 * s], layer, microbatch};
  }

  void run(body_call const& body, placed_call const& p) {
    context c{tensors_, lanes_, body_events_.get(), {}, {}};
    int f = -1, b = -1;
    if (body.forward_layer >= 0) {
      c.f = side(body.forward_layer, p.forward_slot, p.what.forward_microbatch, true);
      f = layers_[body.forward_layer].type;
    }
    if (body.backward_layer >= 0) {
      c.b = side(body.backward_layer, p.backward_slot, p.what.backward_microbatch, false);
      b = layers_[body.backward_layer].type;
    }
    using namespace detail;
    // Compares and direct calls: nothing indirect between the plan and the bodies.
    switch (body.what) {
      case form::forward_backward:
        if constexpr (S::rank_plan::pairs)
          each<0, types * types>([&c, f, b](auto pair) {
            constexpr int k = decltype(pair)::value;
            if (f * types + b == k) body_code<S, form::forward_backward, k / types, k % types, Tensors, Lanes>::run(c);
          });
        break;
      case form::forward: alone<form::forward>(c, f); break;
      case form::backward: alone<form::backward>(c, b); break;
      case form::backward_input:
        if constexpr (S::rank_plan::splits) alone<form::backward_input>(c, b);
        break;
      case form::backward_weight:
        if constexpr (S::rank_plan::splits) alone<form::backward_weight>(c, b);
        break;
    }
  }
  template <form F> void alone(context& c, int type) {
    detail::each<0, types>([&c, type](auto k) {
      constexpr int K = decltype(k)::value;
      if (type == K)
        detail::body_code<S, F, (F == form::forward ? K : -1), (F == form::forward ? -1 : K), Tensors, Lanes>::run(c);
    });
  }

  Tensors& tensors_;
  Lanes& lanes_;
  layer_list<model>& layers_;
  int slots_ = 0;
  std::vector<placed_call> calls_;
  flat_table table_;
  typename slots_of<std::make_integer_sequence<int, types>>::type slot_storage_;
  std::vector<boundary<tensor>> ends_;
  std::vector<boundary<tensor>*> states_;
  std::vector<void*> phases_;
  std::unique_ptr<event[]> body_events_, port_events_;
  std::vector<detail::port<event>> forward_ports_, backward_ports_;
};

template <class S, class T, class L>
executor(S, backend<T, L>, layer_list<typename S::model>&, sizes) -> executor<S, T, L>;
template <class S, class T, class L>
executor(unproved, S, backend<T, L>, layer_list<typename S::model>&, sizes) -> executor<S, T, L>;

}  // namespace v0
}  // namespace stretto
