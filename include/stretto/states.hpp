#pragma once

#include <stretto/layers.hpp>
#include <stretto/layout.hpp>
#include <stretto/slot.hpp>

#include <tuple>
#include <type_traits>
#include <vector>

namespace stretto {
inline namespace v0 {

/// The states of all layers of a rank for all microbatches in flight, made once and addressed by (point of the chain,
/// slot). The states of the layers lie where they read; where a chunk ends at another rank lies a boundary alone.
template <class Model, class Tensors> class state_store {
  using tensor = typename Tensors::tensor;
  template <class Sequence> struct storage_of;
  template <int... K> struct storage_of<std::integer_sequence<int, K...>> {
    using type = std::tuple<std::vector<slot<Model, K, Tensors>>...>;
  };
  using types = std::make_integer_sequence<int, Model::count>;
  struct arrival {
    tensor value[max_carried] = {};
  };

 public:
  state_store(layer_list<Model>& layers, chain_layout const& layout, int slots)
      : layers_(layers), layout_(layout), slots_(slots) {
    make(types{});
  }
  state_store(state_store const&) = delete;
  state_store& operator=(state_store const&) = delete;

  boundary<tensor>& at(int point, int slot) { return *places_[static_cast<unsigned>(slot * layout_.points() + point)]; }
  /// The phases of a layer, as the body of its block type casts them back.
  void* phases(int layer) { return phases_[static_cast<unsigned>(layer)]; }
  /// Where the activation for a chunk comes in from another rank.
  tensor* received(int chunk, int slot) {
    return received_[static_cast<unsigned>(slot * layout_.chunks() + chunk)].value;
  }

  /// The tensor in a cell of the group at (point, slot). A value that this rank made is asked for its place in the graph
  /// until its writer's backward; one that came in lives on in its reader.
  detail::give_back<tensor> place_of(int point, int slot, int cell) {
    boundary<tensor>& here = at(point, slot);
    if (cells::is_chain_value(cell)) {
      tensor* const value = const_cast<tensor*>(here.value[cell]);
      bool arrived = false;
      for (arrival& a : received_)
        for (tensor& t : a.value) arrived |= &t == value;
      return {value, !arrived};
    }
    if (cells::is_chain_gradient(cell)) return {&here.gradient[cell - cells::first_chain_gradient], false};
    return inside(point, here, cell, types{});
  }

  /// Empties every state where it lies, as after a step that ended early.
  void give_back() { empty(types{}); }

 private:
  template <int... K>
  detail::give_back<tensor> inside(int point, boundary<tensor>& here, int cell, std::integer_sequence<int, K...>) {
    int type = -1;
    for (int l = 0; l < layers_.size(); ++l)
      if (layout_.point(l) == point) type = layers_[l].type;
    detail::give_back<tensor> found{};
    auto look = [&]<int Type>(std::integral_constant<int, Type>) {
      auto& state = static_cast<slot<Model, Type, Tensors>&>(here);
      found = cells::is_root(cell) ? detail::give_back<tensor>{&state.root[cell - cells::first_root], true}
                                   : detail::give_back<tensor>{&state.leaf_gradient[cell - cells::first_leaf_gradient], false};
    };
    ((type == K ? look(std::integral_constant<int, K>{}) : void()), ...);
    return found;
  }
  template <int... K> void make(std::integer_sequence<int, K...>) {
    unsigned const n = static_cast<unsigned>(slots_), points = static_cast<unsigned>(layout_.points());
    ((std::get<K>(storage_) = std::vector<slot<Model, K, Tensors>>(n * layers_.template of_type<K>().size())), ...);
    ends_ = std::vector<boundary<tensor>>(n * points);
    received_ = std::vector<arrival>(n * static_cast<unsigned>(layout_.chunks()));
    join(std::integer_sequence<int, K...>{});
  }
  template <int... K> void empty(std::integer_sequence<int, K...>) {
    auto const each_of = [](auto& states) {
      // A named type, since a list could stand for too much where tensors are at::Tensor.
      for (auto& state : states) state = std::remove_reference_t<decltype(state)>();
    };
    (each_of(std::get<K>(storage_)), ...);
    each_of(ends_);
    each_of(received_);
    join(std::integer_sequence<int, K...>{});
  }
  /// Tells everyone where its neighbours are.
  template <int... K> void join(std::integer_sequence<int, K...>) {
    unsigned const n = static_cast<unsigned>(slots_), points = static_cast<unsigned>(layout_.points());
    places_.assign(n * points, nullptr);
    phases_.assign(static_cast<unsigned>(layers_.size()), nullptr);
    for (unsigned i = 0; i < n * points; ++i) places_[i] = &ends_[i];
    for (int s = 0; s < slots_; ++s) {
      for (int l = 0; l < layers_.size(); ++l) ((layers_[l].type == K ? place<K>(l, s) : void()), ...);
      for (int c = 0; c < layout_.chunks(); ++c)
        if (layout_.chunk(c).from >= 0)
          for (int v = 0; v < chain_of<Model>::value.count; ++v)
            at(layout_.chunk(c).begin, s).value[v] = &received(c, s)[v];
      for (int l = 0; l < layers_.size(); ++l) ((layers_[l].type == K ? hand_over<K>(l, s) : void()), ...);
    }
  }
  template <int K> void place(int l, int s) {
    auto& same = layers_.template of_type<K>();
    unsigned const index = static_cast<unsigned>(layers_[l].index);
    phases_[static_cast<unsigned>(l)] = &same[index];
    places_[static_cast<unsigned>(s * layout_.points() + layout_.point(l))] =
        &std::get<K>(storage_)[static_cast<unsigned>(s) * same.size() + index];
  }
  /// The layer behind reads where this one writes, or reads itself what it carries. Layers come in order.
  template <int K> void hand_over(int l, int s) {
    constexpr block_facts const& f = dataflow_of<typename Model::template block<K>>::value;
    auto& state = static_cast<slot<Model, K, Tensors>&>(at(layout_.point(l), s));
    for (int v = 0; v < f.roots; ++v)
      if (int const c = chain_of<Model>::value.find(f.root[v]); c >= 0 && f.root_is_output[v])
        at(layout_.next_point(l), s).value[c] = &state.root[v];
    for (int i = 0; i < f.inputs; ++i)
      if (int const c = chain_of<Model>::value.find(f.input[i]); f.input_is_carried[i])
        at(layout_.next_point(l), s).value[c] = state.value[c];
  }

  layer_list<Model>& layers_;
  chain_layout const& layout_;
  int slots_;
  typename storage_of<types>::type storage_;
  std::vector<boundary<tensor>> ends_;
  std::vector<arrival> received_;
  std::vector<boundary<tensor>*> places_;
  std::vector<void*> phases_;
};

}  // namespace v0
}  // namespace stretto
