#pragma once

#include <stretto/dataflow.hpp>
#include <stretto/program.hpp>

/// Which cells the passes of a node touch. The only place that turns a block's dataflow into cells.
namespace stretto {
inline namespace v0 {

namespace detail {

constexpr bool reads_from_outside(block_facts const& f, int leaf, int node) {
  return f.node_of[f.leaf_phase[leaf]] == node && !f.leaf_inside_node[leaf];
}

constexpr access forward_access(block_facts const& f, chain_facts const& chain, int node) {
  access a;
  for (int r = 0; r < f.leaves; ++r) {
    if (!reads_from_outside(f, r, node)) continue;
    a.reads |= f.leaf_root[r] >= 0 ? cells::root(f.leaf_root[r])
                                   : cells::chain_value(chain.find(f.input[f.leaf_input[r]]));
  }
  a.writes |= cells::context(node);
  for (int v = 0; v < f.roots; ++v) {
    if (f.node_of[f.root_writer[v]] != node) continue;
    a.writes |= cells::root(v);
    if (int const c = chain.find(f.root[v]); c >= 0 && f.root_is_output[v])
      a.next_writes |= cells::chain_value(c) | cells::boundary_forward;
    if (f.root_is_objective[v]) a.next_writes |= cells::boundary_forward;
  }
  return a;
}

/// I and B alike: gradients of what the node wrote come in, gradients of what it read go out.
constexpr access input_gradient_access(block_facts const& f, chain_facts const& chain, int node) {
  access a;
  a.reads |= cells::context(node);
  for (int v = 0; v < f.roots; ++v) {
    if (f.node_of[f.root_writer[v]] != node) continue;
    a.reads |= cells::root(v);
    a.clears |= cells::root(v);
    if (int const c = chain.find(f.root[v]); c >= 0 && f.root_is_output[v]) {
      a.next_reads |= cells::chain_gradient(c);
      a.next_clears |= cells::chain_gradient(c);
    }
  }
  for (int r = 0; r < f.leaves; ++r) {
    int const v = f.leaf_root[r];
    if (reads_from_outside(f, r, node)) {
      if (v < 0)
        a.writes |= cells::chain_gradient(chain.find(f.input[f.leaf_input[r]])) | cells::boundary_backward;
      else if (f.root_is_metadata[v])
        a.reads |= cells::root(v);
      else
        a.writes |= cells::leaf_gradient(r);
    } else if (v >= 0 && !f.leaf_inside_node[r] && !f.root_is_metadata[v] && f.node_of[f.root_writer[v]] == node) {
      a.reads |= cells::leaf_gradient(r);
      a.clears |= cells::leaf_gradient(r);
    }
  }
  return a;
}

}  // namespace detail

constexpr access access_of(block_facts const& f, chain_facts const& chain, int node, pass what) {
  switch (what) {
    case pass::forward: return detail::forward_access(f, chain, node);
    case pass::backward: {
      access a = detail::input_gradient_access(f, chain, node);
      a.clears |= cells::context(node);
      a.accumulates = f.node_has_weights(node);
      return a;
    }
    case pass::backward_input: {
      access a = detail::input_gradient_access(f, chain, node);
      a.writes |= cells::pending(node);
      return a;
    }
    case pass::backward_weight: break;
  }
  access a;
  a.reads = a.clears = cells::pending(node) | cells::context(node);
  a.accumulates = true;
  return a;
}

/// What a body finds at its forward port: the values that the layer before hands over.
constexpr access forward_port_access(block_facts const& f, chain_facts const& chain) {
  access a;
  for (int i = 0; i < f.inputs; ++i) a.writes |= cells::chain_value(chain.find(f.input[i]));
  return a;
}

/// What a body finds at its backward port: the gradients from the layer behind, and everything that the forward of this
/// layer (for a weight pass also its I, `after_input`) left for this microbatch.
constexpr access backward_port_access(block_facts const& f, chain_facts const& chain, bool after_input) {
  access a;
  for (int n = 0; n < f.nodes; ++n) {
    access const forward = access_of(f, chain, n, pass::forward);
    a.writes |= forward.writes;
    if (after_input) a.writes |= cells::pending(n);
    access const input = access_of(f, chain, n, pass::backward_input);
    a.next_writes |= input.next_reads;
  }
  return a;
}

/// What a message touches. A received activation fills the group of the first layer of a chunk and a received gradient the
/// end of a chunk; what is sent lies at the opposite ends. A gradient closes the cell of its activation: one arrives only
/// after the activation has left, and leaves only after the activation was used.
constexpr access message_access(chain_facts const& chain, bool gradient, bool sends) {
  access a;
  for (int c = 0; c < chain.count; ++c) {
    cell_set const cell = gradient ? cells::chain_gradient(c) : cells::chain_value(c);
    (sends ? a.reads : a.writes) |= cell;
    if (gradient) a.clears |= cells::chain_value(c) | (sends ? cell : 0);
  }
  return a;
}

}  // namespace v0
}  // namespace stretto
