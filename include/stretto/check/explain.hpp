#pragma once

#include <stretto/check/sentence.hpp>
#include <stretto/executor/lower.hpp>

/// Diagnoses of flat tables as sentences.
namespace stretto {
inline namespace v0 {
namespace detail {

template <class Schedule> block_facts const& facts_of_op(op const& o) {
  return *facts_at<typename Schedule::model>(o.block,
                                             std::make_integer_sequence<int, Schedule::model::count>{});
}

/// "F.mlp (Experts of MoeLayer) of layer 3, microbatch 2, on comm".
STRETTO_COLD inline void describe(words& to, op const& o, block_facts const& f, int phase = -1) {
  if (o.is_message()) {
    to << "the message of microbatch " << o.microbatch << " on lane " << name_of(o.on);
    return;
  }
  if (phase < 0) phase = f.first_phase_of(o.node);
  to << letter_of(o.what) << "." << name_of(f.kind[phase]) << " (" << f.phase_name[phase] << " of " << f.name
     << ") of layer " << o.layer << ", microbatch " << o.microbatch << ", on " << name_of(o.on);
}

/// The cell in which a diagnosis found an op, as the user calls it.
STRETTO_COLD inline void describe_cell(words& to, op const& o, int cell, block_facts const& f,
                                       chain_facts const& chain) {
  int const leaf = cell - cells::first_leaf_gradient;
  if (cells::is_chain_value(cell))
    to << chain.name[cell];
  else if (cells::is_chain_gradient(cell))
    to << "the gradient of " << chain.name[cell - cells::first_chain_gradient];
  else if (cells::is_boundary(cell) || o.is_message())
    to << "the handover between layers";
  else if (cell == cells::parameter_gradients)
    to << "its parameter gradients";
  else if (cells::is_root(cell))
    to << f.root_name[cell - cells::first_root];
  else if (cells::is_context(cell))
    to << "what forward keeps for backward";
  else if (!cells::is_leaf_gradient(cell))
    to << "what backward_input keeps for backward_weight";
  else
    to << "the gradient of "
       << (f.leaf_root[leaf] >= 0 ? f.root_name[f.leaf_root[leaf]] : f.input_name[f.leaf_input[leaf]]);
}

/// A value of the chain, or its gradient, that no op of the table writes: not the order is wrong, a layer is missing.
STRETTO_COLD inline fault without_layer(diagnosis const& d, flat_table const& table) {
  if (d.what != fault::unwritten_read || !(cells::is_chain_value(d.cell) || cells::is_chain_gradient(d.cell)))
    return d.what;
  op const& at = table.ops[d.at];
  cell_set const cell = cells::one(d.cell);
  int const group = (at.touches.reads & cell) != 0 ? at.group : at.next_group;
  for (op const& o : table.ops) {
    cell_set const writes = o.group == group ? o.touches.writes : 0;
    cell_set const hands_on = o.next_group == group ? o.touches.next_writes | o.touches.carries : 0;
    if (((writes | hands_on) & cell) != 0) return d.what;
  }
  return cells::is_chain_value(d.cell) ? fault::no_layer_before : fault::no_layer_behind;
}

/// The table is that of one of so many ranks.
template <class Schedule>
STRETTO_COLD words explain(diagnosis const& d, flat_table const& table, int rank = 0, int ranks = 1) {
  chain_facts const& chain = chain_of<typename Schedule::model>::value;
  words where;
  if (d.at >= 0) {
    op const& at = table.ops[d.at];
    block_facts const& f = facts_of_op<Schedule>(at);
    bool const limited = d.what == fault::too_many_in_flight;
    where << ": ";
    describe(where, at, f, limited ? f.find_limited(at.node, chain.limited[d.cell]) : -1);
    if (d.cell >= 0 && !limited) describe_cell(where << ", at ", at, d.cell, f, chain);
  }
  if (d.other >= 0)
    describe(where << ", and ", table.ops[d.other], facts_of_op<Schedule>(table.ops[d.other]));
  if (ranks > 1) where << ", on rank " << rank << " of " << ranks;
  return sentence_of(without_layer(d, table), {}, where);
}

} // namespace detail
} // namespace v0
} // namespace stretto
