#pragma once

#include <stretto/detail/type_name.hpp>
#include <stretto/phase.hpp>
#include <stretto/program/limits.hpp>

/// The dataflow of blocks and models as plain values, for every algorithm that asks who reads and writes what.
namespace stretto {
inline namespace v0 {

/// The dataflow of one block. Values are numbered in the order in which they are written ("roots"); every (phase,
/// value) read has a number of its own ("leaf"), so that the gradients of several readers stay apart until the writer
/// adds them in this order.
struct block_facts {
  int phases = 0;
  int nodes = 0;
  int roots = 0;
  int leaves = 0;
  int inputs = 0; ///< values read that no phase of the block has written yet
  detail::text name{};

  phase_kind kind[max_phases] = {};
  int node_of[max_phases] = {};
  bool recomputes[max_phases] = {}; ///< the node runs forward again in backward
  bool has_weights[max_phases] = {};
  bool has_forward[max_phases] = {};
  bool has_explicit_backward[max_phases] = {}; ///< `backward` or `backward_input` is written by hand
  bool has_backward_weight[max_phases] = {};
  /// Microbatches that may be between forward and backward of the phase; 0: any number.
  int in_flight[max_phases] = {};
  detail::type_id limited[max_phases] = {}; ///< the phase type that says so
  detail::text phase_name[max_phases] = {};

  detail::type_id root[max_values] = {};
  detail::text root_name[max_values] = {};
  int root_writer[max_values] = {}; ///< phase
  bool root_is_metadata[max_values] = {};
  bool root_is_objective[max_values] = {};
  bool root_is_saved[max_values] = {}; ///< the backward of its writer needs it
  /// Nothing in the block reads it after it was written: the next layer does.
  bool root_is_output[max_values] = {};
  /// The leaf whose storage its writer hands on under this name; -1: it has storage of its own.
  int root_alias[max_values] = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};

  int leaf_phase[max_reads] = {};
  int leaf_root[max_reads] = {}; ///< the root read, or -1 for an input of the block
  int leaf_input[max_reads] = {}; ///< the input read, or -1
  bool leaf_is_saved[max_reads] = {}; ///< the backward of its reader needs it
  bool leaf_inside_node[max_reads] = {}; ///< written and read in one node: not detached

  detail::type_id input[max_carried] = {};
  detail::text input_name[max_carried] = {};
  int input_node[max_carried] = {}; ///< the node that reads it
  bool input_is_metadata[max_carried] = {};
  bool input_is_carried[max_carried] = {}; ///< the layer behind finds it where this one does

  int recomputed_wrongly = -1; ///< phase, or -1
  int written_twice = -1; ///< root, or -1
  int written_again_by = -1; ///< phase
  int input_of_two_nodes = -1; ///< input, or -1
  int input_read_again_by = -1; ///< phase
  int carried_wrongly = -1; ///< place in the block's list of carried values, or -1
  bool too_large = false; ///< more phases, values or reads than the tables hold

  constexpr int find_root(detail::type_id id) const {
    for (int v = 0; v < roots; ++v)
      if (root[v] == id) return v;
    return -1;
  }
  constexpr int find_root_of(int phase, detail::type_id id) const {
    for (int v = 0; v < roots; ++v)
      if (root[v] == id && root_writer[v] == phase) return v;
    return -1;
  }
  constexpr int find_leaf(int phase, detail::type_id id) const {
    for (int r = 0; r < leaves; ++r)
      if (leaf_phase[r] == phase && (leaf_root[r] >= 0 ? root[leaf_root[r]] : input[leaf_input[r]]) == id)
        return r;
    return -1;
  }
  constexpr int find_input(detail::type_id id) const {
    for (int i = 0; i < inputs; ++i)
      if (input[i] == id) return i;
    return -1;
  }
  constexpr int find_leaf_of_input(detail::type_id id) const {
    for (int r = 0; r < leaves; ++r)
      if (leaf_root[r] < 0 && input[leaf_input[r]] == id) return r;
    return -1;
  }
  /// The leaf that reads the storage of leaf `r` under its first name: an input, or a root that is no alias.
  constexpr int storage_leaf(int r) const {
    while (leaf_root[r] >= 0 && root_alias[leaf_root[r]] >= 0) r = root_alias[leaf_root[r]];
    return r;
  }
  constexpr int first_phase_of(int node) const {
    for (int p = 0; p < phases; ++p)
      if (node_of[p] == node) return p;
    return -1;
  }
  /// The phase of a node that is limited as `id` says; -1: none.
  constexpr int find_limited(int node, detail::type_id id) const {
    for (int p = 0; p < phases; ++p)
      if (node_of[p] == node && in_flight[p] > 0 && limited[p] == id) return p;
    return -1;
  }
  constexpr bool any_recomputes() const {
    for (bool one : recomputes)
      if (one) return true;
    return false;
  }
  constexpr bool node_has_weights(int node) const {
    for (int p = 0; p < phases; ++p)
      if (node_of[p] == node && has_weights[p]) return true;
    return false;
  }
};

/// The values that cross from layer to layer in a model, in the order in which its block types read them.
struct chain_facts {
  int count = 0;
  detail::type_id value[max_carried] = {};
  detail::text name[max_carried] = {};
  bool written[max_carried] = {}; ///< some block type writes it as an output
  bool is_metadata[max_carried] = {};
  int reader[max_carried] = {}; ///< a block type that reads it
  int reader_leaf[max_carried] = {}; ///< and where
  detail::type_id limited[max_limited] = {}; ///< phase types that limit the microbatches in flight
  int limits = 0;
  bool too_large = false;

  constexpr int find_limited(detail::type_id id) const {
    for (int k = 0; k < limits; ++k)
      if (limited[k] == id) return k;
    return -1;
  }
  constexpr int find(detail::type_id id) const {
    for (int c = 0; c < count; ++c)
      if (value[c] == id) return c;
    return -1;
  }
  constexpr void add_inputs(block_facts const& f, int block) {
    for (int i = 0; i < f.inputs; ++i) {
      if (find(f.input[i]) >= 0) continue;
      if (count == max_carried) {
        too_large = true;
        return;
      }
      value[count] = f.input[i];
      name[count] = f.input_name[i];
      is_metadata[count] = f.input_is_metadata[i];
      reader_leaf[count] = f.find_leaf_of_input(f.input[i]);
      reader[count++] = block;
    }
  }
  constexpr void add_limits(block_facts const& f) {
    for (int p = 0; p < f.phases; ++p) {
      if (f.in_flight[p] == 0 || find_limited(f.limited[p]) >= 0) continue;
      if (limits == max_limited) {
        too_large = true;
        return;
      }
      limited[limits++] = f.limited[p];
    }
  }
  constexpr void add_outputs(block_facts const& f) {
    for (int v = 0; v < f.roots; ++v)
      if (int const c = find(f.root[v]); c >= 0 && f.root_is_output[v]) written[c] = true;
  }
};

} // namespace v0
} // namespace stretto
