#pragma once

#include <stretto/executor/slot.hpp>

/// Runs the phases of a layer in order on one thread, with nothing cut in between: for evaluation, and for ordinary
/// autograd over whole microbatches. No schedule is involved.
namespace stretto {
inline namespace v0 {

namespace detail {

template <class Model, int Type, class Tensors, int Ph, class Layer>
void walk_phase(Layer& phases, slot<Model, Type, Tensors>& state, int index, int microbatch) {
  constexpr block_facts const& f = dataflow_of<typename Model::template block<Type>>::value;
  constexpr chain_facts const& chain = chain_of<Model>::value;
  for (int r = 0; r < f.leaves; ++r) {
    if (f.leaf_phase[r] != Ph || f.leaf_inside_node[r]) continue;
    if (int const v = f.leaf_root[r]; v < 0)
      state.leaf[r] = *state.value[chain.find(f.input[f.leaf_input[r]])];
    else if (!f.root_is_metadata[v])
      state.leaf[r] = state.root[v];
  }
  io<Model, Type, Ph, Tensors> view(state, index, microbatch);
  phases.template at<Ph>().forward(view);
}

template <class Model, int Type, class Tensors, class Layer, int... Ph>
void walk_phases(Layer& phases, slot<Model, Type, Tensors>& state, int index, int microbatch,
                 std::integer_sequence<int, Ph...>) {
  (walk_phase<Model, Type, Tensors, Ph>(phases, state, index, microbatch), ...);
}

} // namespace detail

/// Runs layer `index` (of type `Type`) forward for one microbatch. `state.value` points to what the layer reads;
/// what it hands on is entered into `next.value`. The roots and leaves stay in `state` until it is destroyed.
template <class Model, int Type, class Tensors>
void walk_forward(layer<typename Model::template block<Type>>& phases, slot<Model, Type, Tensors>& state,
                  boundary<typename Tensors::tensor>& next, int index, int microbatch) {
  using facts = dataflow_of<typename Model::template block<Type>>;
  constexpr block_facts const& f = facts::value;
  constexpr chain_facts const& chain = chain_of<Model>::value;
  detail::walk_phases(phases, state, index, microbatch,
                      std::make_integer_sequence<int, facts::value.phases>{});
  for (int v = 0; v < f.roots; ++v)
    if (int const c = chain.find(f.root[v]); c >= 0 && f.root_is_output[v]) next.value[c] = &state.root[v];
  for (int i = 0; i < f.inputs; ++i)
    if (int const c = chain.find(f.input[i]); f.input_is_carried[i]) next.value[c] = state.value[c];
}

} // namespace v0
} // namespace stretto
