#pragma once

#include <stretto/executor/backend.hpp>
#include <stretto/executor/node.hpp>
#include <stretto/program/ports.hpp>
#include <stretto/schedule.hpp>

/// The unroller: the straight-line code of one body, from its table.
namespace stretto {
inline namespace v0 {
namespace detail {

/// A message, and where everything lies that it needs.
template <class Tensor, class Event> struct posted_message {
  message what;
  lane on;
  boundary<Tensor>* where;
  Tensor* received; ///< where an activation comes in
  Event* after; ///< what it waits for; null: nothing
  Event* event; ///< recorded behind it
};

template <class Tensors, class Peers> struct send_task {
  Tensors* tensors;
  Peers* peers;
  boundary<typename Tensors::tensor>* where;
  message what;

  void operator()() const {
    message m = what;
    for (m.chain = 0; m.chain < max_carried; ++m.chain) {
      if (m.gradient) {
        if (where->value[m.chain] == nullptr) continue;
        peers->send(m, where->gradient[m.chain]);
        where->gradient[m.chain] = typename Tensors::tensor{};
      } else if (where->value[m.chain] != nullptr) {
        // Without its graph, which would otherwise live until the other end is done with the tensor.
        peers->send(m, tensors->detach(*where->value[m.chain]));
      }
    }
  }
};

template <class Tensors, class Peers> struct receive_task {
  Peers* peers;
  boundary<typename Tensors::tensor>* where;
  typename Tensors::tensor* received;
  message what;

  void operator()() const {
    message m = what;
    for (m.chain = 0; m.chain < max_carried; ++m.chain)
      if (where->value[m.chain] != nullptr)
        (m.gradient ? where->gradient : received)[m.chain] = peers->receive(m);
  }
};

/// A layer and its state for one microbatch, whatever their types.
template <class Tensor> struct layer_place {
  void* phases = nullptr;
  boundary<Tensor>* state = nullptr;
  boundary<Tensor>* next = nullptr;
  int index = 0;
  int microbatch = 0;
};

/// One side of a body: where it works, and where it meets the outside.
template <class Tensor, class Event> struct body_side : layer_place<Tensor> {
  Event* after = nullptr; ///< of what spoke last for the microbatch
  Event* event = nullptr; ///< recorded when this side hands something over
  posted_message<Tensor, Event> const* leaves = nullptr; ///< set if what it hands over leaves the rank
  unsigned known = ~0U; ///< lanes that need not wait for `after` (`bit_of`)
};

template <class Tensors, class Lanes, class Peers> struct body_context {
  using tensor = typename Tensors::tensor;
  using side = body_side<tensor, typename Lanes::event>;
  static constexpr bool has_peers = !std::same_as<Peers, no_peers<tensor>>;
  Tensors& tensors;
  Lanes& lanes;
  Peers* peers;
  typename Lanes::event* events;
  /// Where the releases of each op begin, those before it and those behind it, from the next op on.
  give_back<tensor> const* const* releases;
  side f;
  side b;

  /// Unless the lane knows what spoke last for the microbatch of the side.
  STRETTO_ALWAYS_INLINE void wait_at_port(lane on, side const& at) {
    if ((at.known & bit_of(on)) == 0) lanes.wait(on, *at.after);
  }
  void send(posted_message<tensor, typename Lanes::event> const& m) {
    if (m.after != nullptr) lanes.wait(m.on, *m.after);
    lanes.run(m.on, label_of(m.what, m.on), send_task<Tensors, Peers>{&tensors, peers, m.where, m.what});
    lanes.record(m.on, *m.event);
  }
  void receive(posted_message<tensor, typename Lanes::event> const& m) {
    if (m.after != nullptr) lanes.wait(m.on, *m.after);
    lanes.run(m.on, label_of(m.what, m.on), receive_task<Tensors, Peers>{peers, m.where, m.received, m.what});
    lanes.record(m.on, *m.event);
  }
};

/// The releases that begin at `begin[0]`; at `begin[1]` the next ones do.
template <class Tensor, class Tensors>
STRETTO_ALWAYS_INLINE void give_back_each(give_back<Tensor> const* const* begin, Tensors& tensors) {
  for (auto const *r = begin[0], *last = begin[1]; r != last; ++r) (*r)(tensors);
}

/// What is queued on a lane: one pass of one node, and what goes back before it and behind it.
template <class Model, int Type, int Node, pass What, class Tensors> struct node_task {
  Tensors* tensors;
  layer_place<typename Tensors::tensor> at;
  give_back<typename Tensors::tensor> const* const* releases; ///< where they begin, and those of the next op

  STRETTO_ALWAYS_INLINE void operator()() const {
    give_back_each(releases, *tensors);
    node_run<Model, Type, Node, Tensors> const run{
        *tensors,
        *static_cast<layer<typename Model::template block<Type>>*>(at.phases),
        *static_cast<slot<Model, Type, Tensors>*>(at.state),
        *at.next,
        at.index,
        at.microbatch};
    if constexpr (What == pass::forward)
      run.forward();
    else if constexpr (What == pass::backward)
      run.backward();
    else if constexpr (What == pass::backward_input)
      run.backward_input();
    else
      run.backward_weight();
    give_back_each(releases + 1, *tensors);
  }
};

/// The straight-line code of one body.
template <class Schedule, form Form, int Forward, int Backward, class Tensors, class Lanes, class Peers>
struct body_code {
  using table = body_of<Schedule, Form, Forward, Backward>;
  using context = body_context<Tensors, Lanes, Peers>;
  static constexpr auto events = number_events(table::value);
  static_assert(events.count <= max_events);
  static constexpr int exports_forward = forward_export(table::value);
  static constexpr int exports_backward = backward_export(table::value);
  /// The first rows of the table: no ops.
  static constexpr int ports = has_forward(Form) + has_backward(Form);

  // Function templates and no lambdas: there is one instantiation for each row of each body.

  template <int Index> STRETTO_ALWAYS_INLINE static void step(context& c) {
    constexpr op const& o = table::value.ops[Index];
    constexpr lane on = o.on;
    static_assert(!waits_of(o).elsewhere);
    constexpr int after = waits_of(o).row;
    auto& side = o.is_forward() ? c.f : c.b;
    if constexpr (after >= 0) c.lanes.wait(on, c.events[events.id[after]]);
    if constexpr (waits_of(o).at_port) c.wait_at_port(on, side);
    using model = typename Schedule::model;
    using facts = dataflow_of<typename model::template block<o.block>>;
    constexpr phase_kind kind = facts::value.kind[facts::value.first_phase_of(o.node)];
    c.lanes.run(on, op_label{kind, o.what, on, side.index, side.microbatch},
                node_task<model, o.block, o.node, o.what, Tensors>{&c.tensors, side,
                                                                   c.releases + 2 * (Index - ports)});
    if constexpr (events.id[Index] >= 0) c.lanes.record(on, c.events[events.id[Index]]);
    if constexpr (Index == exports_forward || Index == exports_backward) {
      c.lanes.record(on, *side.event);
      if constexpr (context::has_peers)
        if (side.leaves != nullptr) c.send(*side.leaves);
    }
  }
  STRETTO_ALWAYS_INLINE static void run(context& c) { run(c, rows{}); }

  using rows = numbers<ports, table::size>;
  template <int... Index> static void run(context& c, std::integer_sequence<int, Index...>) {
    (step<Index>(c), ...);
    c.releases += 2 * sizeof...(Index);
  }
};

} // namespace detail
} // namespace v0
} // namespace stretto
