#pragma once

#include <stretto/adapter.hpp>
#include <stretto/detail/unroll.hpp>
#include <stretto/executor/node_range.hpp>
#include <stretto/executor/slot.hpp>
#include <stretto/program/access.hpp>

/// Runs one pass of one node: the only place where a schedule calls a user's phases.
namespace stretto {
inline namespace v0 {
namespace detail {

template <bool If, class Tensor> STRETTO_ALWAYS_INLINE void clear_if(Tensor& what) {
  if constexpr (If) what = Tensor{};
}

/// Node `Node` of a layer of type `Type`, its state for one microbatch, and the boundary to the layer behind it.
///
/// What differs from number to number is a function template of it, which compiles faster than a generic lambda.
template <class Model, int Type, int Node, class Tensors> struct node_run {
  using block = typename Model::template block<Type>;
  using facts = dataflow_of<block>;
  using chain = chain_of<Model>;
  using tensor = typename Tensors::tensor;
  template <int Ph> using phase_type = typename phase_at<Ph, typename block::phases>::type;
  static constexpr node_range at = range_of(facts::value, Node);
  static constexpr bool by_hand = explicit_phases(facts::value, at) == 1;
  static constexpr bool recomputes = facts::value.recomputes[Node];
  using phase_numbers = numbers<at.first_phase, at.end_phase>;
  using root_numbers = numbers<at.first_root, at.end_root>;
  using leaf_numbers = numbers<at.first_leaf, at.end_leaf>;

  Tensors& tensors;
  layer<block>& phases;
  slot<Model, Type, Tensors>& state;
  boundary<tensor>& next;
  int index, microbatch;

  STRETTO_ALWAYS_INLINE void forward() const {
    detach_leaves(leaf_numbers{});
    if constexpr (by_hand) {
      forward_phases(phase_numbers{});
      // A backward written by hand has no use for what its phase does not save: what came in a message lives on here alone.
      if constexpr (!recomputes) clear_unsaved(leaf_numbers{});
      if constexpr (recomputes) forget_all_saved(phase_numbers{});
    } else if constexpr (recomputes) {
      {
        typename Tensors::context passing{};
        [[maybe_unused]] auto scope = tensors.forward_scope(passing);
        forward_phases(phase_numbers{});
      }
      for (int v = at.first_root; v < at.end_root; ++v)
        if (!facts::value.root_is_metadata[v]) tensors.forget_graph(state.root[v]);
    } else {
      [[maybe_unused]] auto scope = tensors.forward_scope(state.context[Node]);
      forward_phases(phase_numbers{});
    }
  }

  STRETTO_ALWAYS_INLINE void backward() const {
    if constexpr (recomputes) forward_again();
    if constexpr (by_hand) {
      backward_phases(phase_numbers{});
    } else {
      gather(root_numbers{});
      with_phases([this](auto&... all)
                      STRETTO_INLINE_LAMBDA { tensors.backward(state.context[Node], request(), all...); });
    }
    hand_back();
    if constexpr (!by_hand || any_metadata(facts::value, at)) end_graph(root_numbers{});
    clear_rest(phase_numbers{});
  }

  STRETTO_ALWAYS_INLINE void backward_input() const {
    if constexpr (recomputes) forward_again();
    if constexpr (by_hand) {
      input_phases(phase_numbers{});
    } else {
      gather(root_numbers{});
      with_phases([this](auto&... all) STRETTO_INLINE_LAMBDA {
        tensors.backward_input(state.context[Node], request(), all...);
      });
    }
    hand_back();
    if constexpr (!by_hand || any_metadata(facts::value, at)) end_graph(root_numbers{});
  }

  STRETTO_ALWAYS_INLINE void backward_weight() const {
    if constexpr (by_hand)
      weight_phases(phase_numbers{});
    else
      with_phases([this](auto&... all)
                      STRETTO_INLINE_LAMBDA { tensors.backward_weight(state.context[Node], all...); });
    clear_rest(phase_numbers{});
  }

private:
  template <int... Leaf> STRETTO_ALWAYS_INLINE void detach_leaves(std::integer_sequence<int, Leaf...>) const {
    (detach_leaf<Leaf>(), ...);
  }
  template <int Leaf> STRETTO_ALWAYS_INLINE void detach_leaf() const {
    constexpr int root = facts::value.leaf_root[Leaf];
    if constexpr (root < 0)
      state.leaf[Leaf] = tensors.detach(*state.value[input_chain<Leaf>()]);
    else if constexpr (!facts::value.root_is_metadata[root] && !facts::value.leaf_inside_node[Leaf])
      state.leaf[Leaf] = tensors.detach(state.root[root]);
  }
  template <int Leaf> static constexpr int input_chain() {
    return chain::value.find(facts::value.input[facts::value.leaf_input[Leaf]]);
  }
  template <int... Leaf> STRETTO_ALWAYS_INLINE void clear_unsaved(std::integer_sequence<int, Leaf...>) const {
    (clear_if<is_unsaved(Leaf)>(state.leaf[Leaf]), ...);
  }
  static constexpr bool is_unsaved(int leaf) {
    int const root = facts::value.leaf_root[leaf];
    return !facts::value.leaf_is_saved[leaf] && !facts::value.leaf_inside_node[leaf] &&
           (root < 0 || !facts::value.root_is_metadata[root]);
  }

  template <bool Again = false, int... Ph>
  STRETTO_ALWAYS_INLINE void forward_phases(std::integer_sequence<int, Ph...>) const {
    (forward_phase<Ph, Again>(), ...);
  }
  template <int Ph, bool Again> STRETTO_ALWAYS_INLINE void forward_phase() const {
    io<Model, Type, Ph, Tensors, pass::forward, Again> view(state, index, microbatch);
    if constexpr (checks_phases<Tensors> && !by_hand && !recomputes)
      check_forward<Ph>(view);
    else
      phases.template at<Ph>().forward(view);
  }
  STRETTO_ALWAYS_INLINE void forward_again() const {
    if constexpr (by_hand) {
      forward_phases<true>(phase_numbers{});
    } else {
      [[maybe_unused]] auto scope = tensors.forward_scope(state.context[Node]);
      forward_phases<true>(phase_numbers{});
    }
  }
  // From the last phase to the first.
  template <int... Ph> STRETTO_ALWAYS_INLINE void backward_phases(std::integer_sequence<int, Ph...>) const {
    (backward_phase<at.first_phase + at.end_phase - 1 - Ph>(), ...);
  }
  template <int Ph> STRETTO_ALWAYS_INLINE void backward_phase() const {
    gather(roots_of<Ph>{});
    io<Model, Type, Ph, Tensors, pass::backward, recomputes> view(state, index, microbatch);
    if constexpr (has_named_members<phase_type<Ph>>::backward) {
      phases.template at<Ph>().backward(view);
    } else {
      phases.template at<Ph>().backward_input(view);
      weight_phase<Ph>();
    }
  }
  template <int... Ph> STRETTO_ALWAYS_INLINE void input_phases(std::integer_sequence<int, Ph...>) const {
    (input_phase<at.first_phase + at.end_phase - 1 - Ph>(), ...);
  }
  template <int Ph> STRETTO_ALWAYS_INLINE void input_phase() const {
    gather(roots_of<Ph>{});
    io<Model, Type, Ph, Tensors, pass::backward, recomputes> view(state, index, microbatch);
    // A phase without weights may have a whole backward only: its input gradients are all there is.
    if constexpr (has_named_members<phase_type<Ph>>::backward_input)
      phases.template at<Ph>().backward_input(view);
    else
      phases.template at<Ph>().backward(view);
  }
  template <int... Ph> STRETTO_ALWAYS_INLINE void weight_phases(std::integer_sequence<int, Ph...>) const {
    (weight_phase<at.first_phase + at.end_phase - 1 - Ph>(), ...);
  }
  template <int Ph> STRETTO_ALWAYS_INLINE void weight_phase() const {
    if constexpr (facts::value.has_weights[Ph] && facts::value.has_backward_weight[Ph]) {
      io<Model, Type, Ph, Tensors, pass::backward_weight, recomputes> view(state, index, microbatch);
      phases.template at<Ph>().backward_weight(view);
    }
  }
  /// The forward of one phase under the eyes of the adapter.
  template <int Ph, class Io> void check_forward(Io& view) const {
    constexpr block_facts const& f = facts::value;
    phase_value<tensor> values[max_reads + max_values];
    int count = 0;
    for (int r = at.first_leaf; r < at.end_leaf; ++r) {
      int const root = f.leaf_root[r], input = f.leaf_input[r];
      if (f.leaf_phase[r] != Ph || (root >= 0 ? f.root_is_metadata[root] : f.input_is_metadata[input]))
        continue;
      bool const inside = root >= 0 && f.leaf_inside_node[r];
      values[count++] = {inside ? &state.root[root] : &state.leaf[r],
                         root >= 0 ? f.root_name[root] : f.input_name[input], false, f.leaf_is_saved[r],
                         inside};
    }
    for (int v = at.first_root; v < at.end_root; ++v)
      if (f.root_writer[v] == Ph && !f.root_is_metadata[v])
        values[count++] = {&state.root[v], f.root_name[v], true, f.root_is_saved[v], false};
    auto& phase = phases.template at<Ph>();
    tensors.check_forward(f.phase_name[Ph], values, count, [&] { phase.forward(view); });
  }
  template <class Act> STRETTO_ALWAYS_INLINE void with_phases(Act&& f) const {
    spread(f, std::make_integer_sequence<int, at.end_phase - at.first_phase>{});
  }
  template <class Act, int... Ph>
  STRETTO_ALWAYS_INLINE void spread(Act&& f, std::integer_sequence<int, Ph...>) const {
    f(phases.template at<at.first_phase + Ph>()...);
  }

  gradient_request<tensor> request() const {
    return {state.roots(state.root, recomputes) + at.first_root,
            state.root_gradient + at.first_root,
            facts::value.root_is_objective + at.first_root,
            at.end_root - at.first_root,
            state.leaf + at.first_leaf,
            state.leaf_gradient + at.first_leaf,
            at.end_leaf - at.first_leaf};
  }

  /// The gradients of what the phases wrote: the sum over the readers in the order of their numbers, then the layer
  /// behind. The order is a property of the block, so the sum does not depend on the schedule.
  template <int... Root> STRETTO_ALWAYS_INLINE void gather(std::integer_sequence<int, Root...>) const {
    (gather_root<Root>(std::make_integer_sequence<int, readers<Root>.count>{}), ...);
  }
  template <int Ph> static constexpr node_range range_of_phase = range_of_phases(facts::value, Ph, Ph + 1);
  template <int Ph> using roots_of = numbers<range_of_phase<Ph>.first_root, range_of_phase<Ph>.end_root>;
  template <int Root> static constexpr root_readers readers = readers_of(facts::value, Root);
  template <int Root, int... Reader>
  STRETTO_ALWAYS_INLINE void gather_root(std::integer_sequence<int, Reader...>) const {
    if constexpr (!facts::value.root_is_metadata[Root]) {
      state.root_gradient[Root] = tensor{};
      (add_reader<Root, readers<Root>.leaf[Reader]>(), ...);
      constexpr int c = chain_of_root(facts::value, chain::value, Root);
      if constexpr (c >= 0) tensors.add(state.root_gradient[Root], next.gradient[c]);
    }
  }
  template <int Root, int Leaf> STRETTO_ALWAYS_INLINE void add_reader() const {
    // Readers inside the node are the autograd adapter's own business.
    if constexpr (by_hand || !facts::value.leaf_inside_node[Leaf])
      tensors.add(state.root_gradient[Root], state.leaf_gradient[Leaf]);
    if constexpr (facts::value.leaf_inside_node[Leaf]) state.leaf_gradient[Leaf] = tensor{};
  }
  /// Gradients of what came from the layer before.
  STRETTO_ALWAYS_INLINE void hand_back() const {
    hand_back_leaves(leaf_numbers{});
    // What is carried has readers behind this layer: their sum comes last, as for the layer that writes the value.
    if constexpr (any_carried(facts::value, Node))
      add_carried(std::make_integer_sequence<int, facts::value.inputs>{});
  }
  template <int... Leaf>
  STRETTO_ALWAYS_INLINE void hand_back_leaves(std::integer_sequence<int, Leaf...>) const {
    (hand_back_leaf<Leaf>(), ...);
  }
  template <int Leaf> STRETTO_ALWAYS_INLINE void hand_back_leaf() const {
    if constexpr (facts::value.leaf_root[Leaf] < 0) {
      constexpr int c = input_chain<Leaf>();
      constexpr bool is_first_reader =
          facts::value.find_leaf_of_input(facts::value.input[facts::value.leaf_input[Leaf]]) == Leaf;
      if constexpr (is_first_reader) state.gradient[c] = tensor{};
      tensors.add(state.gradient[c], state.leaf_gradient[Leaf]);
      state.leaf_gradient[Leaf] = tensor{};
    }
  }
  template <int... Input> STRETTO_ALWAYS_INLINE void add_carried(std::integer_sequence<int, Input...>) const {
    (add_carried_one<Input>(), ...);
  }
  template <int Input> STRETTO_ALWAYS_INLINE void add_carried_one() const {
    constexpr int c = chain::value.find(facts::value.input[Input]);
    if constexpr (carries(facts::value, Input, Node)) tensors.add(state.gradient[c], next.gradient[c]);
  }
  template <int... Root> STRETTO_ALWAYS_INLINE void end_graph(std::integer_sequence<int, Root...>) const {
    (end_graph_of<Root>(), ...);
  }
  template <int Root> STRETTO_ALWAYS_INLINE void end_graph_of() const {
    if constexpr (facts::value.root_is_metadata[Root]) {
      using value_type = root_type<block, Root>;
      static_cast<metadata_cell<value_type>&>(state).content = typename value_type::type{};
    } else if constexpr (!by_hand) {
      // The graph ends here; the storage goes back when the table says.
      tensors.forget_graph(state.root[Root]);
      if constexpr (recomputes) tensors.forget_graph(state.again[Root]);
      state.root_gradient[Root] = tensor{};
    }
  }
  template <int... Ph> STRETTO_ALWAYS_INLINE void clear_rest(std::integer_sequence<int, Ph...>) const {
    for (int v = at.first_root; v < at.end_root; ++v) {
      if constexpr (by_hand) state.root_gradient[v] = tensor{};
      if constexpr (recomputes) state.again[v] = tensor{};
      if constexpr (any_alias(facts::value, at))
        if (facts::value.root_alias[v] >= 0) state.root[v] = tensor{};
    }
    for (int r = at.first_leaf; r < at.end_leaf; ++r) state.leaf[r] = tensor{};
    (forget_saved<Ph>(), ...);
    state.context[Node] = {};
  }
  template <int... Ph> STRETTO_ALWAYS_INLINE void forget_all_saved(std::integer_sequence<int, Ph...>) const {
    (forget_saved<Ph>(), ...);
  }
  template <int Ph> STRETTO_ALWAYS_INLINE void forget_saved() const {
    if constexpr (requires { typename phase_type<Ph>::saved; })
      static_cast<saved_cell<phase_type<Ph>>&>(state).content = typename phase_type<Ph>::saved{};
  }
};

} // namespace detail
} // namespace v0
} // namespace stretto
