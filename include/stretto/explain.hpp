#pragma once

#include <stretto/lower.hpp>
#include <stretto/sentence.hpp>

#include <string>

/// Diagnoses of flat tables as sentences.
namespace stretto {
inline namespace v0 {
namespace detail {

inline std::string to_string(text const& name) { return {name.begin, static_cast<unsigned>(name.size)}; }

template <class S> block_facts const& facts_of_op(op const& o) {
  return *facts_at<typename S::model>(o.block, std::make_integer_sequence<int, S::model::count>{});
}

/// "F.mlp (Experts of MoeLayer) of layer 3, microbatch 2, on comm".
template <class S> STRETTO_COLD std::string describe(op const& o, int phase = -1) {
  if (o.is_message())
    return std::string("the message of microbatch ") + std::to_string(o.microbatch) + " on lane " + name_of(o.on);
  block_facts const& f = facts_of_op<S>(o);
  if (phase < 0) phase = f.first_phase_of(o.node);
  return std::string(letter_of(o.what)) + '.' + name_of(f.kind[phase]) + " (" + to_string(f.phase_name[phase]) + " of " +
         to_string(f.name) + ") of layer " + std::to_string(o.layer) + ", microbatch " + std::to_string(o.microbatch) +
         ", on " + name_of(o.on);
}

/// The cell in which a diagnosis found an op, as the user calls it.
template <class S> STRETTO_COLD std::string describe_cell(op const& o, int cell) {
  chain_facts const& chain = chain_of<typename S::model>::value;
  if (cells::is_chain_value(cell)) return to_string(chain.name[cell]);
  if (cells::is_chain_gradient(cell)) return "the gradient of " + to_string(chain.name[cell - cells::first_chain_gradient]);
  if (cells::is_boundary(cell) || o.is_message()) return "the handover between layers";
  if (cell == cells::parameter_gradients) return "its parameter gradients";
  block_facts const& f = facts_of_op<S>(o);
  if (cells::is_root(cell)) return to_string(f.root_name[cell - cells::first_root]);
  if (cells::is_context(cell)) return "what forward keeps for backward";
  if (!cells::is_leaf_gradient(cell)) return "what backward_input keeps for backward_weight";
  int const leaf = cell - cells::first_leaf_gradient, root = f.leaf_root[leaf];
  return "the gradient of " + to_string(root >= 0 ? f.root_name[root] : f.input_name[f.leaf_input[leaf]]);
}

template <class S> STRETTO_COLD std::string explain(diagnosis const& d, flat_table const& table) {
  std::string where;
  if (d.at >= 0) {
    op const& at = table.ops[static_cast<unsigned>(d.at)];
    bool const limited = d.what == fault::too_many_in_flight;
    detail::type_id const limit = limited ? chain_of<typename S::model>::value.limited[d.cell] : 0;
    where = ": " + describe<S>(at, limited ? facts_of_op<S>(at).find_limited(at.node, limit) : -1);
    if (d.cell >= 0 && !limited) where += ", at " + describe_cell<S>(at, d.cell);
  }
  if (d.other >= 0) where += ", and " + describe<S>(table.ops[static_cast<unsigned>(d.other)]);
  return sentence_of(d.what, {}, where);
}

}  // namespace detail
}  // namespace v0
}  // namespace stretto
