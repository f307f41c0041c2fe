#pragma once

#include <stretto/node.hpp>
#include <stretto/ports.hpp>
#include <stretto/schedule.hpp>

/// The unroller: the straight-line code of one body, from its table.
namespace stretto {
inline namespace v0 {
namespace detail {

/// Where a body meets the outside: the event of the op that spoke last, and the lanes that need not wait for it (`bit_of`):
/// its own, and those that have seen it by other ways.
template <class Event> struct port {
  Event* event = nullptr;
  unsigned known = ~0U;
};

/// A message that leaves when a chunk's last op has spoken.
template <class Tensor, class Event> struct departure {
  message what;
  lane on;
  boundary<Tensor>* where;
  Event* sent;
};

inline op_label label_of(message const& m, lane on) {
  return {phase_kind::attn, m.gradient ? pass::backward : pass::forward, on, m.stage, m.microbatch};
}

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
      if (where->value[m.chain] != nullptr) (m.gradient ? where->gradient : received)[m.chain] = peers->receive(m);
  }
};

/// One side of a body: a layer, its state for one microbatch, and its port.
template <class Tensor, class Event> struct body_side {
  void* phases = nullptr;
  boundary<Tensor>* state = nullptr;
  boundary<Tensor>* next = nullptr;
  port<Event>* through = nullptr;
  Event* event = nullptr;  ///< recorded when this side hands something over
  departure<Tensor, Event>* leaves = nullptr;  ///< set if what it hands over leaves the rank
  int index = 0;
  int microbatch = 0;
};

/// A side of a body but for the microbatch: where everything lies, looked up once.
template <class Tensor, class Event> struct made_side {
  body_side<Tensor, Event> side;
  int type;
  bool ends_chunk;  ///< what it hands over may leave the rank
};
template <class Tensor, class Event> struct made_body {
  form what;
  made_side<Tensor, Event> const* f;
  made_side<Tensor, Event> const* b;
};

template <class Tensors, class Lanes, class Peers> struct body_context {
  using tensor = typename Tensors::tensor;
  using side = body_side<tensor, typename Lanes::event>;
  static constexpr bool has_peers = !std::same_as<Peers, no_peers<tensor>>;
  Tensors& tensors;
  Lanes& lanes;
  Peers* peers;
  typename Lanes::event* events;
  /// Where the releases of each op begin, from the next op on.
  give_back<tensor> const* const* releases;
  side f;
  side b;
  /// The gradient of a pair would leave on the lane of its activation, which both ends list first.
  bool backward_waits = false;
  bool held = false;

  /// A side has made what leaves the rank.
  void hand_over(side const& s, bool forward) {
    if (!forward && backward_waits) {
      held = true;
      return;
    }
    send(*s.leaves, *s.through);
    if (forward) backward_waits = false;
  }
  /// Sends what lies at the end of a chunk, as soon as `from` has spoken.
  void send(departure<tensor, typename Lanes::event>& leaves, port<typename Lanes::event> const& from) {
    lanes.wait(leaves.on, *from.event);
    lanes.run(leaves.on, label_of(leaves.what, leaves.on),
              send_task<Tensors, Peers>{&tensors, peers, leaves.where, leaves.what});
    lanes.record(leaves.on, *leaves.sent);
  }
};

/// What is queued on a lane: one pass of one node, and what goes back after it.
template <class Model, int K, int Node, pass What, class Tensors> struct node_task {
  Tensors* tensors;
  layer<typename Model::template block<K>>* phases;
  slot<Model, K, Tensors>* state;
  boundary<typename Tensors::tensor>* next;
  give_back<typename Tensors::tensor> const* first;
  give_back<typename Tensors::tensor> const* last;
  int index;
  int microbatch;

  STRETTO_ALWAYS_INLINE void operator()() const {
    node_run<Model, K, Node, Tensors> const run{*tensors, *phases, *state, *next, index, microbatch};
    if constexpr (What == pass::forward)
      run.forward();
    else if constexpr (What == pass::backward)
      run.backward();
    else if constexpr (What == pass::backward_input)
      run.backward_input();
    else
      run.backward_weight();
    for (auto const* r = first; r != last; ++r) (*r)(*tensors);
  }
};

/// The straight-line code of one body.
template <class S, form F, int Forward, int Backward, class Tensors, class Lanes, class Peers> struct body_code {
  using table = body_of<S, F, Forward, Backward>;
  using context = body_context<Tensors, Lanes, Peers>;
  static constexpr auto events = number_events(table::value);
  static_assert(events.count <= max_events);
  static constexpr int exports_forward = forward_export(table::value);
  static constexpr int exports_backward = backward_export(table::value);
  static constexpr int ports = has_forward(F) + has_backward(F);  ///< the first rows of the table: no ops

  // Function templates and no lambdas: there is one instantiation for each row of each body.

  /// Makes lane `On` wait for row `W`: for a port unless the lane knows it, else for the event of the row.
  template <int W, lane On> STRETTO_ALWAYS_INLINE static void wait_for(context& c, typename context::side& side) {
    if constexpr (W >= 0) {
      if constexpr (table::value.ops[W].is_port()) {
        if ((side.through->known & bit_of(On)) == 0) c.lanes.wait(On, *side.through->event);
      } else {
        c.lanes.wait(On, c.events[events.id[W]]);
      }
    }
  }

  template <int Index> STRETTO_ALWAYS_INLINE static void step(context& c) {
    constexpr op const& o = table::value.ops[Index];
    if constexpr (!o.is_port()) {
      auto& side = o.is_forward() ? c.f : c.b;
      static_assert(o.wait[index_of(lane::send_lower)] < 0 && o.wait[index_of(lane::send_higher)] < 0 &&
                    o.wait[index_of(lane::receive_lower)] < 0 && o.wait[index_of(lane::receive_higher)] < 0);
      wait_for<o.wait[index_of(lane::compute)], o.on>(c, side);
      wait_for<o.wait[index_of(lane::comm)], o.on>(c, side);
      wait_for<o.wait[index_of(lane::forward_port)], o.on>(c, side);
      wait_for<o.wait[index_of(lane::backward_port)], o.on>(c, side);
      using model = typename S::model;
      using block = typename model::template block<o.block>;
      constexpr phase_kind kind = dataflow_of<block>::value.kind[dataflow_of<block>::value.first_phase_of(o.node)];
      c.lanes.run(o.on, op_label{kind, o.what, o.on, side.index, side.microbatch},
                  node_task<model, o.block, o.node, o.what, Tensors>{
                      &c.tensors, static_cast<layer<block>*>(side.phases),
                      static_cast<slot<model, o.block, Tensors>*>(side.state), side.next, c.releases[Index - ports],
                      c.releases[Index - ports + 1], side.index, side.microbatch});
      if constexpr (events.id[Index] >= 0) c.lanes.record(o.on, c.events[events.id[Index]]);
      if constexpr (Index == exports_forward || Index == exports_backward) {
        c.lanes.record(o.on, *side.event);
        *side.through = {side.event, bit_of(o.on)};
        if constexpr (context::has_peers)
          if (side.leaves != nullptr) c.hand_over(side, o.is_forward());
      }
    }
  }
  template <int... Index> STRETTO_ALWAYS_INLINE static void run_rows(context& c, std::integer_sequence<int, Index...>) {
    using expand = int[];
    (void)expand{0, (step<Index>(c), 0)...};
  }
  static void run(context& c) {
    run_rows(c, std::make_integer_sequence<int, table::size>{});
    c.releases += table::size - ports;
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace stretto
