#pragma once

#include <stretto/dataflow.hpp>
#include <stretto/link.hpp>
#include <stretto/rules.hpp>

/// Proofs on values. The same functions run when a program is compiled, when an executor is made, and in tests.
namespace stretto {
inline namespace v0 {

/// The first thing that is wrong. `at` and `other` are rows of the table (-1: none), `cell` the cell they meet in, counted
/// from the start of its group. For faults that come before there is a table, `at` and `other` are phases of block
/// `block`, or `cell` the number of a root, a leaf or a pass.
struct diagnosis {
  fault what = fault::none;
  int at = -1;
  int other = -1;
  int cell = -1;
  int block = -1;
  constexpr explicit operator bool() const { return what != fault::none; }
};

/// Races, order and lifetimes of a table: every op must have seen the ops that wrote what it reads, and those that used
/// what it overwrites or gives back; weight gradients of a node ascend.
constexpr diagnosis check_table(op const* ops, int count, int groups, int layers) {
  detail::hazards hazards(ops, groups, layers);
  detail::clocks clocks(ops, count);
  auto const cell_of = [groups](long long cell) {
    return cell < groups * 64LL ? static_cast<int>(cell % 64) : cells::parameter_gradients;
  };
  detail::scratch<int> last_weights(layers * 8LL);
  for (int i = 0; i < layers * 8; ++i) last_weights.data[i] = -1;
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
    for (int l = 0; l < lane_count; ++l)
      if (need.latest[l] >= 0 && !clocks.has_seen(i, need.latest[l]))
        return {fault::race, i, need.latest[l], cell_of(need.cell[l])};
    if (o.touches.accumulates) {
      int& last = last_weights.data[o.layer * 8 + o.node];
      if (o.microbatch < last) return {fault::weight_order, i};
      last = o.microbatch;
    }
    clocks.leave(i);
    hazards.run(i);
  }
  return {};
}

/// What is wrong with a block by itself.
constexpr diagnosis check_block(block_facts const& f, int block) {
  if (f.too_large) return {fault::too_large, -1, -1, -1, block};
  if (f.written_twice >= 0) return {fault::written_twice, -1, -1, f.written_twice, block};
  if (f.input_of_two_nodes >= 0)
    return {fault::input_of_two_nodes, -1, -1, f.find_leaf_of_input(f.input[f.input_of_two_nodes]), block};
  for (int r = 0; r < f.leaves; ++r)
    if (f.leaf_root[r] >= 0 && f.root_is_objective[f.leaf_root[r]])
      return {fault::objective_read, -1, -1, f.leaf_root[r], block};
  if (f.carried_wrongly >= 0) return {fault::carried_wrongly, -1, -1, f.carried_wrongly, block};
  return {};
}

/// What is wrong with the values that cross from layer to layer.
constexpr diagnosis check_chain(chain_facts const& chain) {
  if (chain.too_large) return {fault::too_large};
  for (int c = 0; c < chain.count; ++c)
    if (!chain.written[c] || chain.is_metadata[c])
      return {fault::never_produced, -1, -1, chain.reader_leaf[c], chain.reader[c]};
  return {};
}

}  // namespace v0
}  // namespace stretto
