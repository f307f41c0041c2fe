#pragma once

#include <stretto/block/dataflow.hpp>
#include <stretto/program/link.hpp>
#include <stretto/rules.hpp>

/// Proofs on values. The same functions run when a program is compiled, when an executor is made, and in tests.
namespace stretto {
inline namespace v0 {

/// The first thing that is wrong. `at` and `other` are rows of the table (-1: none), `cell` the cell they meet in, counted
/// from the start of its group; where too many are in flight it is the number of the limit in the model. For faults that come
/// before there is a table, `at` and `other` are phases of block `block`, or `cell` the number of a root, a leaf or a pass.
struct diagnosis {
  fault what = fault::none;
  int at = -1;
  int other = -1;
  int cell = -1;
  int block = -1;
  constexpr explicit operator bool() const { return what != fault::none; }
};

/// Whether a node that is tied to one lane runs backward on another than forward.
constexpr bool leaves_lane(op const& forward, op const& backward) {
  return backward.touches.keeps_lane && forward.on != backward.on;
}

/// Whether two ops that meet in a cell belong to two microbatches that have one slot, one after the other.
constexpr bool reuses_slot(op const& earlier, op const& later, int cell) {
  return earlier.microbatch != later.microbatch && cell != cells::parameter_gradients &&
         !earlier.is_message() && !later.is_message();
}

/// Races, order and lifetimes of a table: every op must have seen the ops that wrote what it reads, and those that used
/// what it overwrites or gives back; weight gradients of a node ascend.
///
/// What must not leave its lane is compared with its forward, and what may be in flight only in numbers is counted in the
/// order of issue, which is that of its lane. In a body the handles of the backward layer are there from the start.
STRETTO_COLD constexpr diagnosis check_table(op const* ops, int count, int groups, int layers) {
  detail::hazards hazards(ops, groups, layers);
  detail::clocks clocks(ops, count);
  auto const cell_of = [groups](long cell) {
    return cell < groups * 1L * cells::count ? static_cast<int>(cell % cells::count)
                                             : cells::parameter_gradients;
  };
  int in_flight[max_limited] = {};
  if (count > 0 && ops[0].is_port())
    for (int i = 0; i < count; ++i)
      for (int k = 0; k < max_limited && !ops[i].is_forward(); ++k) in_flight[k] += ops[i].touches.takes[k];
  detail::sequence<int> last_weights(layers * 1L * max_phases, -1);
  for (int i = 0; i < count; ++i) {
    op const& o = ops[i];
    clocks.enter(i);
    for (int w : o.wait) {
      if (w >= i) return {fault::wait_on_later, i, w};
      if (w >= 0) clocks.wait(i, w);
    }
    detail::needs const need = hazards.before(i);
    if (need.unwritten >= 0) {
      fault const what = o.what == pass::backward_weight ? fault::weight_before_input : fault::unwritten_read;
      return {what, i, -1, cell_of(need.unwritten)};
    }
    if (need.cleared >= 0) return {fault::read_after_release, i, need.cleared_by, cell_of(need.cleared)};
    for (int l = 0; l < lane_count; ++l) {
      int const earlier = need.latest[l], cell = cell_of(need.cell[l]);
      if (earlier >= 0 && !clocks.has_seen(i, earlier))
        return {reuses_slot(ops[earlier], o, cell) ? fault::slot_in_use : fault::race, i, earlier, cell};
    }
    if (int const f = o.touches.keeps_lane && !o.is_forward() ? hazards.forward_of(o) : -1;
        f >= 0 && leaves_lane(ops[f], o))
      return {fault::backward_leaves_lane, i, f};
    for (int k = 0; k < max_limited; ++k) {
      if (o.touches.takes[k] == 0) continue;
      in_flight[k] += o.is_forward() ? o.touches.takes[k] : -o.touches.takes[k];
      if (in_flight[k] > o.touches.in_flight[k]) return {fault::too_many_in_flight, i, -1, k};
    }
    if (o.touches.accumulates) {
      int& last = last_weights[o.layer * max_phases + o.node];
      if (o.microbatch < last) return {fault::weight_order, i};
      last = o.microbatch;
    }
    clocks.leave(i);
    hazards.run(i);
  }
  return {};
}

/// Whether every node of a step runs forward once and backward once, whole or as I and then W, for every microbatch that
/// it has. Dataflow alone would miss a weight gradient that nobody adds up. In a diagnosis `at` is a pass that lacks its
/// other half, or runs again.
STRETTO_COLD constexpr diagnosis check_passes(op const* ops, int count, int layers) {
  int microbatches = 0;
  for (int i = 0; i < count; ++i)
    if (ops[i].microbatch >= microbatches) microbatches = ops[i].microbatch + 1;
  struct rows {
    int of[4] = {-1, -1, -1, -1};
  };
  detail::sequence<rows> seen(layers * 1L * max_phases * microbatches);
  for (int i = 0; i < count; ++i) {
    op const& o = ops[i];
    if (o.is_message() || o.is_port()) continue;
    int& row =
        seen[(o.layer * 1L * max_phases + o.node) * microbatches + o.microbatch].of[static_cast<int>(o.what)];
    if (row >= 0) return {fault::doubled_node, i, row};
    row = i;
  }
  for (long k = 0; k < layers * 1L * max_phases * microbatches; ++k) {
    auto const [f, b, i, w] = seen[k].of;
    int const any = f >= 0 ? f : b >= 0 ? b : i >= 0 ? i : w;
    if (any < 0) continue;
    if (b >= 0 && i >= 0) return {fault::doubled_node, i, b};
    if (f < 0 || (b < 0 && i < 0) || (i < 0) != (w < 0))
      return {fault::missing_node, i >= 0 && w < 0 ? i : any};
  }
  return {};
}

/// What is wrong with a block by itself.
constexpr diagnosis check_block(block_facts const& f, int block) {
  if (f.too_large) return {fault::too_large, -1, -1, -1, block};
  if (int const v = f.written_twice; v >= 0)
    return {fault::written_twice, f.root_writer[v], f.written_again_by, v, block};
  if (f.input_of_two_nodes >= 0) {
    int const first = f.find_leaf_of_input(f.input[f.input_of_two_nodes]);
    return {fault::input_of_two_nodes, f.leaf_phase[first], f.input_read_again_by, first, block};
  }
  for (int r = 0; r < f.leaves; ++r)
    if (f.leaf_root[r] >= 0 && f.root_is_objective[f.leaf_root[r]])
      return {fault::objective_read, f.leaf_phase[r], -1, f.leaf_root[r], block};
  for (int v = 0; v < f.roots; ++v)
    if (f.root_alias[v] >= 0 && f.root_is_output[v])
      return {fault::aliased_wrongly, f.root_writer[v], -1, v, block};
  if (f.recomputed_wrongly >= 0) return {fault::recompute_spans_cut, f.recomputed_wrongly, -1, -1, block};
  if (f.carried_wrongly >= 0) return {fault::carried_wrongly, -1, -1, f.carried_wrongly, block};
  return {};
}

/// What is wrong with the values that cross from layer to layer.
constexpr diagnosis check_chain(chain_facts const& chain) {
  if (chain.too_large) return {fault::too_large};
  for (int c = 0; c < chain.count; ++c)
    if (chain.is_metadata[c] || !chain.written[c])
      return {chain.is_metadata[c] ? fault::metadata_crosses : fault::never_produced, -1, -1,
              chain.reader_leaf[c], chain.reader[c]};
  return {};
}

} // namespace v0
} // namespace stretto
