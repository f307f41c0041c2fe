#pragma once

#include <stretto/node.hpp>
#include <stretto/ports.hpp>
#include <stretto/schedule.hpp>

/// The unroller: the straight-line code of one body, from its table.
namespace stretto {
inline namespace v0 {
namespace detail {

/// Where a body meets the outside: the event of the op that spoke last, and the lane it ran on. No event: nothing to wait.
template <class Event> struct port {
  Event* event = nullptr;
  lane on = lane::compute;
};

/// One side of a body: a layer, its state for one microbatch, and its port.
template <class Tensor, class Event> struct body_side {
  void* phases = nullptr;
  boundary<Tensor>* state = nullptr;
  boundary<Tensor>* next = nullptr;
  port<Event>* through = nullptr;
  Event* event = nullptr;  ///< recorded when this side hands something over
  int index = 0;
  int microbatch = 0;
};

template <class Tensors, class Lanes> struct body_context {
  using side = body_side<typename Tensors::tensor, typename Lanes::event>;
  Tensors& tensors;
  Lanes& lanes;
  typename Lanes::event* events;
  side f;
  side b;
};

/// What is queued on a lane: one pass of one node.
template <class Model, int K, int Node, pass What, class Tensors> struct node_task {
  Tensors* tensors;
  layer<typename Model::template block<K>>* phases;
  slot<Model, K, Tensors>* state;
  boundary<typename Tensors::tensor>* next;
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
  }
};

/// The straight-line code of one body.
template <class S, form F, int Forward, int Backward, class Tensors, class Lanes> struct body_code {
  using table = body_of<S, F, Forward, Backward>;
  using context = body_context<Tensors, Lanes>;
  static constexpr auto events = number_events(table::value);
  static_assert(events.count <= max_events);
  static constexpr int exports_forward = forward_export(table::value);
  static constexpr int exports_backward = backward_export(table::value);

  template <int I> STRETTO_ALWAYS_INLINE static void step(context& c) {
    constexpr op o = table::value.ops[I];
    if constexpr (!o.is_port()) {
      auto& side = o.is_forward() ? c.f : c.b;
      each<0, lane_count>([&c, &side](auto l) STRETTO_INLINE_LAMBDA {
        constexpr lane on = table::value.ops[I].on;
        constexpr int w = table::value.ops[I].wait[decltype(l)::value];
        if constexpr (w >= 0) {
          if constexpr (table::value.ops[w].is_port()) {
            if (side.through->on != on) c.lanes.wait(on, *side.through->event);
          } else {
            c.lanes.wait(on, c.events[events.id[w]]);
          }
        }
      });
      using model = typename S::model;
      using block = typename model::template block<o.block>;
      constexpr phase_kind kind = dataflow_of<block>::value.kind[dataflow_of<block>::value.first_phase_of(o.node)];
      c.lanes.run(o.on, op_label{kind, o.what, o.on, side.index, side.microbatch},
                  node_task<model, o.block, o.node, o.what, Tensors>{
                      &c.tensors, static_cast<layer<block>*>(side.phases),
                      static_cast<slot<model, o.block, Tensors>*>(side.state), side.next, side.index, side.microbatch});
      if constexpr (events.id[I] >= 0) c.lanes.record(o.on, c.events[events.id[I]]);
      if constexpr (I == exports_forward || I == exports_backward) {
        c.lanes.record(o.on, *side.event);
        *side.through = {side.event, o.on};
      }
    }
  }
  static void run(context& c) {
    each<0, table::size>([&c](auto i) STRETTO_INLINE_LAMBDA { step<decltype(i)::value>(c); });
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace stretto
