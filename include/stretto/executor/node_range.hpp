#pragma once

#include <stretto/program/access.hpp>

/// Facts about one node that its generated code needs, from those of its block.
namespace stretto {
inline namespace v0 {
namespace detail {

/// Where the phases, roots and leaves of a node, or of some of its phases, lie in the tables of its block; they are
/// consecutive.
struct node_range {
  int first_phase = 0, end_phase = 0;
  int first_root = 0, end_root = 0;
  int first_leaf = 0, end_leaf = 0;
};
constexpr node_range range_of_phases(block_facts const& f, int first, int end) {
  node_range r{first, end};
  while (r.first_root < f.roots && f.root_writer[r.first_root] < first) ++r.first_root;
  r.end_root = r.first_root;
  while (r.end_root < f.roots && f.root_writer[r.end_root] < end) ++r.end_root;
  while (r.first_leaf < f.leaves && f.leaf_phase[r.first_leaf] < first) ++r.first_leaf;
  r.end_leaf = r.first_leaf;
  while (r.end_leaf < f.leaves && f.leaf_phase[r.end_leaf] < end) ++r.end_leaf;
  return r;
}
constexpr node_range range_of(block_facts const& f, int node) {
  int first = 0;
  while (first < f.phases && f.node_of[first] < node) ++first;
  int end = first;
  while (end < f.phases && f.node_of[end] == node) ++end;
  return range_of_phases(f, first, end);
}

/// Whether all phases of the node have a backward written by hand (1), none has (0), or some do (-1).
constexpr int explicit_phases(block_facts const& f, node_range const& r) {
  int count = 0;
  for (int p = r.first_phase; p < r.end_phase; ++p) count += f.has_explicit_backward[p];
  return count == 0 ? 0 : count == r.end_phase - r.first_phase ? 1 : -1;
}

constexpr bool any_metadata(block_facts const& f, node_range const& r) {
  for (int v = r.first_root; v < r.end_root; ++v)
    if (f.root_is_metadata[v]) return true;
  return false;
}
constexpr bool any_alias(block_facts const& f, node_range const& r) {
  for (int v = r.first_root; v < r.end_root; ++v)
    if (f.root_alias[v] >= 0) return true;
  return false;
}
constexpr bool any_carried(block_facts const& f, int node) {
  for (int i = 0; i < f.inputs; ++i)
    if (carries(f, i, node)) return true;
  return false;
}

/// The leaves that read a root, in their order.
struct root_readers {
  int count = 0;
  int leaf[max_reads] = {};
};
constexpr root_readers readers_of(block_facts const& f, int root) {
  root_readers found;
  for (int r = 0; r < f.leaves; ++r)
    if (f.leaf_root[r] == root) found.leaf[found.count++] = r;
  return found;
}

} // namespace detail
} // namespace v0
} // namespace stretto
