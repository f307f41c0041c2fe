#pragma once

#include <stretto/block/dataflow.hpp>
#include <stretto/block/items.hpp>

#include <concepts>

/// From the phases and cuts of a block to its dataflow.
namespace stretto {
inline namespace v0 {
namespace detail {

struct block_builder {
  block_facts f{};
  bool cut_before = false, recomputes = false, ends_here = false;

  template <class Value, class Item> constexpr void read() {
    type_id const id = id_of<Value>();
    int const p = f.phases;
    if (f.leaves == max_reads) {
      f.too_large = true;
      return;
    }
    int const r = f.leaves++;
    f.leaf_phase[r] = p;
    f.leaf_root[r] = f.find_root(id);
    f.leaf_input[r] = -1;
    f.leaf_is_saved[r] = saves<Item, Value>();
    if (int const v = f.leaf_root[r]; v >= 0) {
      f.root_is_output[v] = false;
      f.leaf_inside_node[r] = f.node_of[f.root_writer[v]] == f.node_of[p];
      return;
    }
    int i = 0;
    while (i < f.inputs && f.input[i] != id) ++i;
    if (i == max_carried) {
      f.too_large = true;
      return;
    }
    if (i == f.inputs) {
      ++f.inputs;
      f.input[i] = id;
      f.input_name[i] = name_of_type<Value>();
      f.input_node[i] = f.node_of[p];
      f.input_is_metadata[i] = std::derived_from<Value, metadata>;
    } else if (f.input_node[i] != f.node_of[p]) {
      f.input_of_two_nodes = i;
      f.input_read_again_by = p;
    }
    f.leaf_input[r] = i;
  }

  template <class Value, class Item> constexpr void write() {
    type_id const id = id_of<Value>();
    if (int const v = f.find_root(id); v >= 0) f.written_twice = v, f.written_again_by = f.phases;
    if (f.roots == max_values) {
      f.too_large = true;
      return;
    }
    int const v = f.roots++;
    f.root[v] = id;
    f.root_name[v] = name_of_type<Value>();
    f.root_writer[v] = f.phases;
    f.root_is_saved[v] = saves<Item, Value>();
    f.root_is_metadata[v] = std::derived_from<Value, metadata>;
    f.root_is_objective[v] = std::derived_from<Value, objective>;
    f.root_is_output[v] = !f.root_is_metadata[v] && !f.root_is_objective[v];
  }

  template <class Item, class... Read> constexpr void read_all(values<Read...>) { (read<Read, Item>(), ...); }
  template <class Item, class... Written> constexpr void write_all(values<Written...>) {
    (write<Written, Item>(), ...);
  }
  /// A phase that does not say what it saves is taken to save everything.
  template <class Item, class Value> static constexpr bool saves() {
    if constexpr (requires { typename Item::saves; })
      return []<class... Saved>(values<Saved...>) {
        return (std::same_as<Saved, Value> || ...);
      }(typename Item::saves{});
    else
      return true;
  }

  /// Names come in pairs: what is read, and what it is written as.
  template <class... Values> constexpr void alias(int p, values<Values...>) {
    type_id const names[] = {id_of<Values>()..., 0};
    for (int k = 0; k + 1 < static_cast<int>(sizeof...(Values)); k += 2)
      if (int const v = f.find_root_of(p, names[k + 1]); v >= 0) f.root_alias[v] = f.find_leaf(p, names[k]);
  }
  /// Who shares a communicator shares its buffers.
  template <class Item> constexpr void limit(int p) {
    int most = 0;
    if constexpr (requires { typename Item::communicator; }) {
      most = Item::communicator::in_flight;
      f.limited[p] = id_of<typename Item::communicator>();
    } else if constexpr (requires { Item::in_flight; }) {
      most = Item::in_flight;
      f.limited[p] = id_of<Item>();
    }
    f.in_flight[p] = most < 0 ? 0 : most < max_in_flight ? most : max_in_flight;
  }

  /// The first phase at which a node and its `Recompute` part.
  constexpr void refuse_recompute(int phase) {
    if (f.recomputed_wrongly < 0) f.recomputed_wrongly = phase < 0 ? 0 : phase;
  }
  template <class... Items> constexpr void add_all(item_list<Items...>) { (add<Items>(), ...); }
  template <class Item> constexpr void add() {
    if constexpr (std::same_as<Item, Detach>) {
      if (recomputes) refuse_recompute(f.phases - 1);
      cut_before = f.phases > 0;
      ends_here = false;
    } else if constexpr (std::same_as<Item, recompute_begins>) {
      if (f.phases > 0 && !cut_before) refuse_recompute(f.phases);
      recomputes = true;
    } else if constexpr (std::same_as<Item, recompute_ends>) {
      recomputes = false;
      ends_here = true;
    } else {
      if (ends_here) refuse_recompute(f.phases);
      if (f.phases == max_phases) {
        f.too_large = true;
        return;
      }
      int const p = f.phases;
      if (p == 0)
        f.nodes = 1;
      else if (cut_before)
        ++f.nodes;
      cut_before = false;
      f.recomputes[f.nodes - 1] = recomputes;
      using members = has_named_members<Item>;
      f.kind[p] = Item::kind;
      f.node_of[p] = f.nodes - 1;
      f.has_weights[p] = Item::has_weights;
      f.has_forward[p] = members::forward;
      f.has_explicit_backward[p] = members::backward || members::backward_input;
      f.has_backward_weight[p] = members::backward_weight;
      f.phase_name[p] = name_of_type<Item>();
      limit<Item>(p);
      read_all<Item>(typename Item::reads{});
      write_all<Item>(typename Item::writes{});
      if constexpr (requires { typename Item::aliases; }) alias(p, typename Item::aliases{});
      ++f.phases;
    }
  }
};

} // namespace detail
} // namespace v0
} // namespace stretto
