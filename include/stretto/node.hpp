#pragma once

#include <stretto/access.hpp>
#include <stretto/adapter.hpp>
#include <stretto/detail/unroll.hpp>
#include <stretto/slot.hpp>

/// Runs one pass of one node: the only place where a schedule calls a user's phases.
namespace stretto {
inline namespace v0 {
namespace detail {

/// Where the phases, roots and leaves of a node lie in the tables of its block; they are consecutive.
struct node_range {
  int first_phase = 0, end_phase = 0;
  int first_root = 0, end_root = 0;
  int first_leaf = 0, end_leaf = 0;
};
constexpr node_range range_of(block_facts const& f, int node) {
  node_range r;
  while (r.first_phase < f.phases && f.node_of[r.first_phase] < node) ++r.first_phase;
  r.end_phase = r.first_phase;
  while (r.end_phase < f.phases && f.node_of[r.end_phase] == node) ++r.end_phase;
  while (r.first_root < f.roots && f.root_writer[r.first_root] < r.first_phase) ++r.first_root;
  r.end_root = r.first_root;
  while (r.end_root < f.roots && f.root_writer[r.end_root] < r.end_phase) ++r.end_root;
  while (r.first_leaf < f.leaves && f.leaf_phase[r.first_leaf] < r.first_phase) ++r.first_leaf;
  r.end_leaf = r.first_leaf;
  while (r.end_leaf < f.leaves && f.leaf_phase[r.end_leaf] < r.end_phase) ++r.end_leaf;
  return r;
}

/// Whether all phases of the node have a backward written by hand (1), none has (0), or some do (-1).
constexpr int explicit_phases(block_facts const& f, node_range const& r) {
  int count = 0;
  for (int p = r.first_phase; p < r.end_phase; ++p) count += f.has_explicit_backward[p];
  return count == 0 ? 0 : count == r.end_phase - r.first_phase ? 1 : -1;
}

/// Node `Node` of a layer of block type `K`, its state for one microbatch, and the boundary to the layer behind it.
template <class Model, int K, int Node, class Tensors> struct node_run {
  using block = typename Model::template block<K>;
  using facts = dataflow_of<block>;
  using chain = chain_of<Model>;
  using tensor = typename Tensors::tensor;
  template <int Ph> using phase_type = typename phase_at<Ph, typename block::phases>::type;
  static constexpr node_range at = range_of(facts::value, Node);
  static constexpr bool by_hand = explicit_phases(facts::value, at) == 1;
  static constexpr bool recomputes = facts::value.recomputes[Node];

  Tensors& tensors;
  layer<block>& phases;
  slot<Model, K, Tensors>& state;
  boundary<tensor>& next;
  int index;
  int microbatch;

  template <int R> static constexpr bool is_first_reader =
      facts::value.find_leaf_of_input(facts::value.input[facts::value.leaf_input[R]]) == R;
  template <int R> static constexpr int input_chain = chain::value.find(facts::value.input[facts::value.leaf_input[R]]);

  STRETTO_ALWAYS_INLINE void forward() const {
    each<at.first_leaf, at.end_leaf>([this](auto r) STRETTO_INLINE_LAMBDA {
      constexpr int leaf = decltype(r)::value;
      constexpr int root = facts::value.leaf_root[leaf];
      if constexpr (root < 0)
        state.leaf[leaf] = tensors.detach(*state.value[input_chain<leaf>]);
      else if constexpr (!facts::value.root_is_metadata[root] && !facts::value.leaf_inside_node[leaf])
        state.leaf[leaf] = tensors.detach(state.root[root]);
    });
    if constexpr (by_hand) {
      forward_phases();
      // A backward written by hand has no use for what its phase does not save: what came in a message lives on here alone.
      each<at.first_leaf, at.end_leaf>([this](auto r) STRETTO_INLINE_LAMBDA {
        constexpr int leaf = decltype(r)::value;
        constexpr int root = facts::value.leaf_root[leaf];
        if constexpr (!recomputes && !facts::value.leaf_is_saved[leaf] && !facts::value.leaf_inside_node[leaf] &&
                      (root < 0 || !facts::value.root_is_metadata[root < 0 ? 0 : root]))
          state.leaf[leaf] = tensor{};
      });
      if constexpr (recomputes) forget_saved();
    } else if constexpr (recomputes) {
      {
        typename Tensors::context passing{};
        [[maybe_unused]] auto scope = tensors.forward_scope(passing);
        forward_phases();
      }
      each<at.first_root, at.end_root>([this](auto v) STRETTO_INLINE_LAMBDA {
        if constexpr (!facts::value.root_is_metadata[decltype(v)::value]) tensors.forget_graph(state.root[decltype(v)::value]);
      });
    } else {
      [[maybe_unused]] auto scope = tensors.forward_scope(state.context[Node]);
      forward_phases();
    }
  }

  STRETTO_ALWAYS_INLINE void backward() const {
    forward_again();
    if constexpr (by_hand) {
      each_backwards<at.first_phase, at.end_phase>([this](auto p) STRETTO_INLINE_LAMBDA {
        gather<decltype(p)::value, decltype(p)::value + 1>();
        io<Model, K, decltype(p)::value, Tensors, false, recomputes> view(state, index, microbatch);
        auto& phase = phases.template at<decltype(p)::value>();
        if constexpr (has_named_members<phase_type<decltype(p)::value>>::backward) {
          phase.backward(view);
        } else {
          phase.backward_input(view);
          run_weight_of<decltype(p)::value>();
        }
      });
    } else {
      gather<at.first_phase, at.end_phase>();
      with_phases([this](auto&... all) STRETTO_INLINE_LAMBDA {
        tensors.backward(state.context[Node], request(), all...);
      });
    }
    hand_back();
    end_graph();
    clear_rest();
  }

  STRETTO_ALWAYS_INLINE void backward_input() const {
    forward_again();
    if constexpr (by_hand) {
      each_backwards<at.first_phase, at.end_phase>([this](auto p) STRETTO_INLINE_LAMBDA {
        gather<decltype(p)::value, decltype(p)::value + 1>();
        io<Model, K, decltype(p)::value, Tensors, false, recomputes> view(state, index, microbatch);
        auto& phase = phases.template at<decltype(p)::value>();
        // A phase without weights may have a whole backward only: its input gradients are all there is.
        if constexpr (has_named_members<phase_type<decltype(p)::value>>::backward_input)
          phase.backward_input(view);
        else
          phase.backward(view);
      });
    } else {
      gather<at.first_phase, at.end_phase>();
      with_phases([this](auto&... all) STRETTO_INLINE_LAMBDA {
        tensors.backward_input(state.context[Node], request(), all...);
      });
    }
    hand_back();
    end_graph();
  }

  STRETTO_ALWAYS_INLINE void backward_weight() const {
    if constexpr (by_hand) {
      each_backwards<at.first_phase, at.end_phase>(
          [this](auto p) STRETTO_INLINE_LAMBDA { this->template run_weight_of<decltype(p)::value>(); });
    } else {
      with_phases([this](auto&... all) STRETTO_INLINE_LAMBDA { tensors.backward_weight(state.context[Node], all...); });
    }
    clear_rest();
  }

 private:
  template <bool Again = false> STRETTO_ALWAYS_INLINE void forward_phases() const {
    each<at.first_phase, at.end_phase>([this](auto p) STRETTO_INLINE_LAMBDA {
      io<Model, K, decltype(p)::value, Tensors, false, Again> view(state, index, microbatch);
      if constexpr (checks_phases<Tensors> && !by_hand && !recomputes)
        check_forward<decltype(p)::value>(view);
      else
        phases.template at<decltype(p)::value>().forward(view);
    });
  }
  STRETTO_ALWAYS_INLINE void forward_again() const {
    if constexpr (recomputes && by_hand) {
      forward_phases<true>();
    } else if constexpr (recomputes) {
      [[maybe_unused]] auto scope = tensors.forward_scope(state.context[Node]);
      forward_phases<true>();
    }
  }
  STRETTO_ALWAYS_INLINE void forget_saved() const {
    each<at.first_phase, at.end_phase>([this](auto p) STRETTO_INLINE_LAMBDA {
      if constexpr (requires { typename phase_type<decltype(p)::value>::saved; })
        static_cast<saved_cell<phase_type<decltype(p)::value>>&>(state).content = {};
    });
  }
  /// The forward of one phase under the eyes of the adapter.
  template <int Ph, class Io> void check_forward(Io& view) const {
    constexpr block_facts const& f = facts::value;
    phase_value<tensor> values[max_reads + max_values];
    int count = 0;
    for (int r = at.first_leaf; r < at.end_leaf; ++r) {
      int const root = f.leaf_root[r], input = f.leaf_input[r];
      if (f.leaf_phase[r] != Ph || (root >= 0 ? f.root_is_metadata[root] : f.input_is_metadata[input])) continue;
      bool const inside = root >= 0 && f.leaf_inside_node[r];
      values[count++] = {inside ? &state.root[root] : &state.leaf[r],
                         root >= 0 ? f.root_name[root] : f.input_name[input], false, f.leaf_is_saved[r], inside};
    }
    for (int v = at.first_root; v < at.end_root; ++v)
      if (f.root_writer[v] == Ph && !f.root_is_metadata[v])
        values[count++] = {&state.root[v], f.root_name[v], true, f.root_is_saved[v], false};
    auto& phase = phases.template at<Ph>();
    tensors.check_forward(f.phase_name[Ph], values, count, [&] { phase.forward(view); });
  }
  template <int Ph> STRETTO_ALWAYS_INLINE void run_weight_of() const {
    if constexpr (facts::value.has_weights[Ph] && facts::value.has_backward_weight[Ph]) {
      io<Model, K, Ph, Tensors, true, recomputes> view(state, index, microbatch);
      phases.template at<Ph>().backward_weight(view);
    }
  }
  template <class F> STRETTO_ALWAYS_INLINE void with_phases(F&& f) const {
    spread(f, std::make_integer_sequence<int, at.end_phase - at.first_phase>{});
  }
  template <class F, int... Ph> STRETTO_ALWAYS_INLINE void spread(F&& f, std::integer_sequence<int, Ph...>) const {
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
  template <int FirstPhase, int EndPhase> STRETTO_ALWAYS_INLINE void gather() const {
    each<at.first_root, at.end_root>([this](auto v) STRETTO_INLINE_LAMBDA {
      constexpr int root = decltype(v)::value;
      constexpr int writer = facts::value.root_writer[root];
      if constexpr (writer >= FirstPhase && writer < EndPhase && !facts::value.root_is_metadata[root]) {
        state.root_gradient[root] = tensor{};
        each<0, facts::value.leaves>([this](auto r) STRETTO_INLINE_LAMBDA {
          constexpr int leaf = decltype(r)::value;
          // Readers inside the node are the autograd adapter's own business.
          if constexpr (facts::value.leaf_root[leaf] == root && (by_hand || !facts::value.leaf_inside_node[leaf]))
            tensors.add(state.root_gradient[root], state.leaf_gradient[leaf]);
          if constexpr (facts::value.leaf_root[leaf] == root && facts::value.leaf_inside_node[leaf])
            state.leaf_gradient[leaf] = tensor{};
        });
        constexpr int c = chain_of_root(facts::value, chain::value, root);
        if constexpr (c >= 0) tensors.add(state.root_gradient[root], next.gradient[c]);
      }
    });
  }
  /// Gradients of what came from the layer before.
  STRETTO_ALWAYS_INLINE void hand_back() const {
    each<at.first_leaf, at.end_leaf>([this](auto r) STRETTO_INLINE_LAMBDA {
      constexpr int leaf = decltype(r)::value;
      if constexpr (facts::value.leaf_root[leaf] < 0) {
        if constexpr (is_first_reader<leaf>) state.gradient[input_chain<leaf>] = tensor{};
        tensors.add(state.gradient[input_chain<leaf>], state.leaf_gradient[leaf]);
        state.leaf_gradient[leaf] = tensor{};
      }
    });
    // What is carried has readers behind this layer: their sum comes last, as for the layer that writes the value.
    each<0, facts::value.inputs>([this](auto i) STRETTO_INLINE_LAMBDA {
      constexpr int input = decltype(i)::value;
      constexpr int c = chain::value.find(facts::value.input[input]);
      if constexpr (carries(facts::value, input, Node)) tensors.add(state.gradient[c], next.gradient[c]);
    });
  }
  STRETTO_ALWAYS_INLINE void end_graph() const {
    each<at.first_root, at.end_root>([this](auto v) STRETTO_INLINE_LAMBDA {
      constexpr int root = decltype(v)::value;
      if constexpr (facts::value.root_is_metadata[root]) {
        using value_type = root_type<block, root>;
        static_cast<metadata_cell<value_type>&>(state).content = typename value_type::type{};
      } else if constexpr (!by_hand) {
        // The graph ends here; the storage goes back when the table says.
        tensors.forget_graph(state.root[root]);
        if constexpr (recomputes) tensors.forget_graph(state.again[root]);
        state.root_gradient[root] = tensor{};
      }
    });
  }
  STRETTO_ALWAYS_INLINE void clear_rest() const {
    if constexpr (by_hand)
      each<at.first_root, at.end_root>(
          [this](auto v) STRETTO_INLINE_LAMBDA { state.root_gradient[decltype(v)::value] = tensor{}; });
    each<at.first_root, at.end_root>([this](auto v) STRETTO_INLINE_LAMBDA {
      if constexpr (facts::value.root_alias[decltype(v)::value] >= 0) state.root[decltype(v)::value] = tensor{};
      if constexpr (recomputes) state.again[decltype(v)::value] = tensor{};
    });
    each<at.first_leaf, at.end_leaf>(
        [this](auto r) STRETTO_INLINE_LAMBDA { state.leaf[decltype(r)::value] = tensor{}; });
    forget_saved();
    state.context[Node] = {};
  }
};

}  // namespace detail
}  // namespace v0
}  // namespace stretto
