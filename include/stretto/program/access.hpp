#pragma once

#include <stretto/block/dataflow.hpp>
#include <stretto/program.hpp>

/// Which cells the passes of a node touch. The only place that turns a block's dataflow into cells.
namespace stretto {
inline namespace v0 {

namespace detail {

constexpr bool reads_from_outside(block_facts const& f, int leaf, int node) {
  return f.node_of[f.leaf_phase[leaf]] == node && !f.leaf_inside_node[leaf];
}

/// Whether the node reads input `i` and hands it on to the layer behind as it is.
constexpr bool carries(block_facts const& f, int i, int node) {
  return f.input_is_carried[i] && f.input_node[i] == node;
}

/// The chain value that root `v` becomes for the layer behind, or -1. Its storage is then that value's cell.
constexpr int chain_of_root(block_facts const& f, chain_facts const& chain, int v) {
  return f.root_is_output[v] ? chain.find(f.root[v]) : -1;
}

/// Marks the storage that leaf `r` reads.
constexpr void read_leaf(cell_access& a, block_facts const& f, chain_facts const& chain, int r) {
  int const s = f.storage_leaf(r);
  a.reads |= f.leaf_root[s] >= 0 ? cells::root(f.leaf_root[s])
                                 : cells::chain_value(chain.find(f.input[f.leaf_input[s]]));
}

/// Where backward is autograd's, it touches the handles of the roots, which the lane of the forward gives back, and what I
/// leaves for W is memory of that lane.
constexpr bool is_autograds(block_facts const& f, int node) {
  for (int p = 0; p < f.phases; ++p)
    if (f.node_of[p] == node && !f.has_explicit_backward[p]) return true;
  return false;
}

/// Marks what ties the passes of a node together beyond its cells.
constexpr void tie_passes(cell_access& a, block_facts const& f, chain_facts const& chain, int node) {
  a.keeps_lane = is_autograds(f, node);
  for (int p = 0; p < f.phases; ++p) {
    if (f.node_of[p] != node || f.in_flight[p] == 0) continue;
    a.keeps_lane = true;
    // A model with more limits than there is room for is refused; see chain_facts.
    int const k = chain.find_limited(f.limited[p]);
    if (k < 0) continue;
    ++a.takes[k];
    if (a.in_flight[k] == 0 || a.in_flight[k] > f.in_flight[p])
      a.in_flight[k] = static_cast<short>(f.in_flight[p]);
  }
}

constexpr cell_access forward_access(block_facts const& f, chain_facts const& chain, int node) {
  cell_access a;
  tie_passes(a, f, chain, node);
  cell_access aliased;
  for (int r = 0; r < f.leaves; ++r) {
    if (!reads_from_outside(f, r, node)) continue;
    int const v = f.leaf_root[r];
    bool const is_alias = v >= 0 && f.root_alias[v] >= 0;
    read_leaf(is_alias ? aliased : a, f, chain, r);
    // An alias is no storage: that its writer has run shows in what that keeps.
    if (is_alias) a.reads |= cells::context(f.node_of[f.root_writer[v]]);
  }
  a.aliases = aliased.reads & ~a.reads & cells::chain_values;
  a.reads |= aliased.reads;
  for (int i = 0; i < f.inputs; ++i)
    if (carries(f, i, node)) {
      a.carries |= cells::chain_value(chain.find(f.input[i]));
      a.next_writes |= cells::boundary_forward;
    }
  a.writes |= cells::context(node);
  for (int v = 0; v < f.roots; ++v) {
    if (f.node_of[f.root_writer[v]] != node) continue;
    if (int const c = chain_of_root(f, chain, v); c >= 0)
      a.next_writes |= cells::chain_value(c) | cells::boundary_forward;
    else if (f.root_alias[v] >= 0)
      a.aliases |= cells::root(v);
    else
      a.writes |= cells::root(v);
    if (f.root_is_objective[v]) a.next_writes |= cells::boundary_forward;
  }
  return a;
}

/// What the backward passes of a node need of its forward: what it saved, and metadata.
constexpr void read_saved(cell_access& a, block_facts const& f, chain_facts const& chain, int node,
                          bool weight_only) {
  a.reads |= cells::context(node);
  for (int r = 0; r < f.leaves; ++r) {
    // Inside of the node as well: what a phase does not save, the next one may.
    if (f.node_of[f.leaf_phase[r]] != node) continue;
    // What runs again needs all that it reads from outside, and makes the rest itself.
    if (f.recomputes[node] && f.leaf_inside_node[r]) continue;
    bool const metadata = f.leaf_root[r] >= 0 && f.root_is_metadata[f.leaf_root[r]];
    bool const again = f.recomputes[node] && !weight_only;
    if (metadata ? !weight_only : f.leaf_is_saved[r] || again) read_leaf(a, f, chain, r);
  }
  for (int v = 0; v < f.roots; ++v) {
    if (f.node_of[f.root_writer[v]] != node) continue;
    if (f.root_is_metadata[v] ? weight_only : !f.root_is_saved[v] || f.recomputes[node]) continue;
    if (f.root_alias[v] >= 0)
      read_leaf(a, f, chain, f.root_alias[v]);
    else if (int const c = chain_of_root(f, chain, v); c >= 0)
      a.next_reads |= cells::chain_value(c);
    else
      a.reads |= cells::root(v);
  }
}

/// The gradients of what the node wrote, one for each reader outside of it.
constexpr void read_output_gradients(cell_access& a, block_facts const& f, chain_facts const& chain,
                                     int node) {
  for (int v = 0; v < f.roots; ++v)
    if (f.node_of[f.root_writer[v]] == node)
      if (int const c = chain_of_root(f, chain, v); c >= 0) a.next_reads |= cells::chain_gradient(c);
  for (int r = 0; r < f.leaves; ++r) {
    int const v = f.leaf_root[r];
    if (v >= 0 && !f.leaf_inside_node[r] && !f.root_is_metadata[v] && f.node_of[f.root_writer[v]] == node)
      a.reads |= cells::leaf_gradient(r);
  }
}

/// I and B alike: gradients of what the node wrote come in, gradients of what it read go out.
constexpr cell_access input_gradient_access(block_facts const& f, chain_facts const& chain, int node) {
  cell_access a;
  tie_passes(a, f, chain, node);
  read_saved(a, f, chain, node, false);
  read_output_gradients(a, f, chain, node);
  for (int v = 0; v < f.roots; ++v)
    if (f.node_of[f.root_writer[v]] == node && f.root_is_metadata[v]) a.clears |= cells::root(v);
  for (int r = 0; r < f.leaves; ++r) {
    int const v = f.leaf_root[r];
    if (!reads_from_outside(f, r, node)) continue;
    if (v < 0)
      a.writes |= cells::chain_gradient(chain.find(f.input[f.leaf_input[r]])) | cells::boundary_backward;
    else if (!f.root_is_metadata[v])
      a.writes |= cells::leaf_gradient(r);
  }
  for (int i = 0; i < f.inputs; ++i)
    if (carries(f, i, node)) a.next_reads |= cells::chain_gradient(chain.find(f.input[i]));
  return a;
}

} // namespace detail

/// Storage is read by whoever computes with it: forward readers, and every backward pass of a phase that saved it. A weight
/// pass may need the gradients of the outputs once more. Nothing here gives storage back: that follows from the whole table
/// (see program/releases.hpp).
constexpr cell_access access_of(block_facts const& f, chain_facts const& chain, int node, pass what) {
  switch (what) {
  case pass::forward:
    return detail::forward_access(f, chain, node);
  case pass::backward: {
    cell_access a = detail::input_gradient_access(f, chain, node);
    a.clears |= cells::context(node);
    a.accumulates = f.node_has_weights(node);
    return a;
  }
  case pass::backward_input: {
    cell_access a = detail::input_gradient_access(f, chain, node);
    a.writes |= cells::pending(node);
    return a;
  }
  case pass::backward_weight:
    break;
  }
  cell_access a;
  a.keeps_lane = detail::is_autograds(f, node);
  detail::read_saved(a, f, chain, node, true);
  detail::read_output_gradients(a, f, chain, node);
  a.reads |= cells::pending(node);
  a.clears |= cells::pending(node) | cells::context(node);
  a.accumulates = true;
  return a;
}

/// What a body finds at its forward port: the values that the layer before hands over.
constexpr cell_access forward_port_access(block_facts const& f, chain_facts const& chain) {
  cell_access a;
  for (int i = 0; i < f.inputs; ++i) a.writes |= cells::chain_value(chain.find(f.input[i]));
  return a;
}

/// What a body finds at its backward port: the gradients from the layer behind, and everything that the forward of this
/// layer used and left for this microbatch (for a weight pass also what its I left, `after_input`).
constexpr cell_access backward_port_access(block_facts const& f, chain_facts const& chain, bool after_input) {
  cell_access a = forward_port_access(f, chain);
  for (int n = 0; n < f.nodes; ++n) {
    cell_access const forward = access_of(f, chain, n, pass::forward);
    cell_access const input = access_of(f, chain, n, pass::backward_input);
    a.writes |= forward.writes;
    a.next_writes |= forward.next_writes | input.next_reads;
    if (after_input) a.writes |= cells::pending(n) | input.writes;
  }
  return a;
}

/// What a message touches. A received activation fills the group of the first layer of a chunk, a received gradient the end
/// of a chunk; what is sent lies at the opposite ends. The boundary cells order the two directions: a gradient comes in
/// after its activation has left, an activation after the gradient of the microbatch that had the slot before.
constexpr cell_access message_access(chain_facts const& chain, bool gradient, bool sends) {
  cell_access a;
  if (sends)
    a.reads |= gradient ? cells::boundary_backward : cells::boundary_forward;
  else
    a.writes |= cells::boundary_backward | cells::boundary_forward;
  for (int c = 0; c < chain.count; ++c) {
    cell_set const cell = gradient ? cells::chain_gradient(c) : cells::chain_value(c);
    (sends ? a.reads : a.writes) |= cell;
    if (gradient && sends) a.clears |= cell;
  }
  return a;
}

/// A pass where the chain values `arrived` came in from another rank. The layers that read such a value take it over: its
/// storage belongs to what they keep, under this or another name, and the place where it came in is free for the next one.
constexpr cell_access taken_over(cell_access a, cell_set arrived, bool forward) {
  a.reads &= ~(forward ? arrived & a.aliases : arrived);
  return a;
}

} // namespace v0
} // namespace stretto
