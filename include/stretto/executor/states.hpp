#pragma once

#include <stretto/executor/layout.hpp>
#include <stretto/executor/slot.hpp>
#include <stretto/layers.hpp>

namespace stretto {
inline namespace v0 {
namespace detail {

template <class Model, int Type, class Tensors> struct slots_of_type {
  sequence<slot<Model, Type, Tensors>> slots;
};
template <class Model, class Tensors, class Types> struct slots_of_types;
template <class Model, class Tensors, int... Types>
struct slots_of_types<Model, Tensors, std::integer_sequence<int, Types...>>
    : slots_of_type<Model, Types, Tensors>... {};

/// The states of all layers of a rank for all microbatches in flight, made once and addressed by (point of the chain,
/// slot). The states of the layers lie where they read; where a chunk ends at another rank lies a boundary alone.
template <class Model, class Tensors> class state_store {
  using tensor = typename Tensors::tensor;
  using types = std::make_integer_sequence<int, Model::count>;
  struct arrival {
    tensor value[max_carried] = {};
  };
  /// A state, and what lies in it if it is one of a layer.
  struct place {
    boundary<tensor>* state = nullptr;
    block_facts const* facts = nullptr;
    tensor* root = nullptr;
    tensor* leaf_gradient = nullptr;
  };

public:
  state_store(layer_list<Model>& layers, chain_layout const& layout, int slots)
      : layers_(layers), layout_(layout), slots_(slots), ends_(slots * 1L * layout.points()),
        received_(slots * 1L * layout.chunks()), places_(slots * 1L * layout.points()) {
    make(types{});
    join();
  }
  state_store(state_store const&) = delete;
  state_store& operator=(state_store const&) = delete;

  boundary<tensor>& at(int point, int slot) { return *place_at(point, slot).state; }
  /// Where the activation for a chunk comes in from another rank.
  tensor* received(int chunk, int slot) { return received_[slot * layout_.chunks() + chunk].value; }

  /// The tensor in a cell of the group at (point, slot). A value that this rank made is asked for its place in the graph
  /// until its writer's backward; one that came in lives on in its reader.
  STRETTO_COLD give_back<tensor> place_of(int point, int slot, int cell) {
    place const& here = place_at(point, slot);
    if (cells::is_chain_value(cell)) {
      tensor* const value = const_cast<tensor*>(here.state->value[cell]);
      bool arrived = false;
      for (arrival& a : received_)
        for (tensor& t : a.value) arrived |= &t == value;
      return {value, !arrived};
    }
    if (cells::is_chain_gradient(cell))
      return {&here.state->gradient[cell - cells::first_chain_gradient], false};
    if (cells::is_root(cell)) return {here.root + (cell - cells::first_root), true};
    return {here.leaf_gradient + (cell - cells::first_leaf_gradient), false};
  }

  /// Empties every state where it lies, as after a step that ended early.
  STRETTO_COLD void give_back_all() {
    empty(types{});
    join();
  }

private:
  place& place_at(int point, int slot) { return places_[slot * layout_.points() + point]; }
  template <int Type> auto& slots_of() {
    return static_cast<slots_of_type<Model, Type, Tensors>&>(storage_).slots;
  }

  template <int... Types> void make(std::integer_sequence<int, Types...>) {
    for (long i = 0; i < slots_ * 1L * layout_.points(); ++i) places_[i].state = &ends_[i];
    (make_of_type<Types>(), ...);
  }
  template <int Type> STRETTO_COLD void make_of_type() {
    auto& all = slots_of<Type>();
    all = sequence<slot<Model, Type, Tensors>>(slots_ * 1L * layers_.count(Type));
    long next = 0;
    for (int s = 0; s < slots_; ++s)
      for (int l = 0; l < layers_.size(); ++l)
        if (layers_[l].type == Type) {
          slot<Model, Type, Tensors>& state = all[next++];
          place_at(layout_.point(l), s) = {&state, &dataflow_of<typename Model::template block<Type>>::value,
                                           state.root, state.leaf_gradient};
        }
  }
  template <int... Types> void empty(std::integer_sequence<int, Types...>) {
    (empty_each(slots_of<Types>()), ...);
    empty_each(ends_);
    empty_each(received_);
  }
  template <class State> static void empty_each(sequence<State>& states) {
    // A named type, since a list could stand for too much where tensors are at::Tensor.
    for (State& state : states) state = State();
  }
  /// Tells everyone where its neighbours are: a layer reads where the one before writes, or what that one carries. Layers
  /// come in order.
  STRETTO_COLD void join() {
    chain_facts const& chain = chain_of<Model>::value;
    for (int s = 0; s < slots_; ++s) {
      for (int c = 0; c < layout_.chunks(); ++c)
        if (layout_.chunk(c).from >= 0)
          for (int v = 0; v < chain.count; ++v) at(layout_.chunk(c).begin, s).value[v] = &received(c, s)[v];
      for (int l = 0; l < layers_.size(); ++l) {
        place const& here = place_at(layout_.point(l), s);
        block_facts const& f = *here.facts;
        boundary<tensor>& next = at(layout_.next_point(l), s);
        for (int v = 0; v < f.roots; ++v)
          if (int const c = chain.find(f.root[v]); c >= 0 && f.root_is_output[v])
            next.value[c] = here.root + v;
        for (int i = 0; i < f.inputs; ++i)
          if (int const c = chain.find(f.input[i]); c >= 0 && f.input_is_carried[i])
            next.value[c] = here.state->value[c];
      }
    }
  }

  layer_list<Model>& layers_;
  chain_layout const& layout_;
  int slots_;
  slots_of_types<Model, Tensors, types> storage_;
  sequence<boundary<tensor>> ends_;
  sequence<arrival> received_;
  sequence<place> places_;
};

} // namespace detail
} // namespace v0
} // namespace stretto
