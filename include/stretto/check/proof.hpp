#pragma once

// First, for a short list of includers in the compiler's message.
#include <stretto/error.hpp>

#include <stretto/check/proof_find.hpp>

/// The compile-time proof of a schedule: its blocks, the values between them, and every body. A schedule that fails stops
/// the compiler with one sentence and the names of what is wrong.
namespace stretto {
inline namespace v0 {
namespace detail {

// From here on only what a failed proof needs: row and cell numbers become the user's own types again.

template <class Block, pass What, int Node, lane On> constexpr auto op_noun() {
  return std::type_identity<error::op_at<What, node_phase<Block, Node>, On, Block>>{};
}
template <class Schedule, int Row> constexpr auto row_noun() {
  constexpr finding found = fault_in<Schedule>::value;
  constexpr op o = draft_of<Schedule, found.in, found.blocks.forward, found.blocks.backward>::value.ops[Row];
  if constexpr (o.is_port())
    return std::type_identity<error::outside_of_this_layer>{};
  else
    return op_noun<typename Schedule::model::template block<o.block>, o.what, o.node, o.on>();
}
template <class Schedule> constexpr auto cell_noun_of() {
  constexpr finding found = fault_in<Schedule>::value;
  constexpr op o =
      draft_of<Schedule, found.in, found.blocks.forward, found.blocks.backward>::value.ops[found.d.at];
  constexpr cell_set mine = o.touches.reads | o.touches.writes | o.touches.clears;
  if constexpr ((mine >> found.d.cell & 1) != 0)
    return cell_noun<typename Schedule::model::template block<o.block>, found.d.cell>();
  else
    return cell_noun<void, found.d.cell>();
}
template <class Schedule, int Index> constexpr auto phase_noun() {
  using block = typename Schedule::model::template block<fault_in<Schedule>::value.d.block>;
  return std::type_identity<typename phase_at<Index, typename block::phases>::type>{};
}

// Alias templates rather than base classes: every level of instantiation costs lines in the compiler's message.
template <class Schedule>
using at_noun = typename decltype(row_noun<Schedule, fault_in<Schedule>::value.d.at>())::type;
template <class Schedule>
using other_noun = typename decltype(row_noun<Schedule, fault_in<Schedule>::value.d.other>())::type;
template <class Schedule> using met_in = typename decltype(cell_noun_of<Schedule>())::type;
/// The phase that has too many microbatches in flight, and how many it allows.
template <class Schedule> constexpr auto limited_noun() {
  constexpr finding found = fault_in<Schedule>::value;
  constexpr op o =
      draft_of<Schedule, found.in, found.blocks.forward, found.blocks.backward>::value.ops[found.d.at];
  using block = typename Schedule::model::template block<o.block>;
  constexpr int phase = dataflow_of<block>::value.find_limited(
      o.node, chain_of<typename Schedule::model>::value.limited[found.d.cell]);
  return std::type_identity<
      error::op_at<o.what, typename phase_at<phase, typename block::phases>::type, o.on, block>>{};
}
template <class Schedule> using limited_at = typename decltype(limited_noun<Schedule>())::type;
template <class Schedule> constexpr int allowed() {
  constexpr finding found = fault_in<Schedule>::value;
  constexpr draft const& body =
      draft_of<Schedule, found.in, found.blocks.forward, found.blocks.backward>::value;
  return body.ops[found.d.at].touches.in_flight[found.d.cell];
}
template <class Schedule> using allowed_at = error::which_allows<allowed<Schedule>()>;
template <class Schedule>
using at_phase = typename decltype(phase_noun<Schedule, fault_in<Schedule>::value.d.at>())::type;
template <class Schedule>
using other_phase = typename decltype(phase_noun<Schedule, fault_in<Schedule>::value.d.other>())::type;
template <class Schedule>
using at_pass = error::pass_of<static_cast<pass>(fault_in<Schedule>::value.d.cell), at_phase<Schedule>>;
template <class Schedule>
using at_block = typename Schedule::model::template block<fault_in<Schedule>::value.d.block>;
template <class Schedule> using at_root = root_type<at_block<Schedule>, fault_in<Schedule>::value.d.cell>;
template <class Schedule>
using at_leaf = typename leaf_type<at_block<Schedule>, fault_in<Schedule>::value.d.cell>::type;

template <class Schedule>
using at_reader =
    typename phase_at<dataflow_of<at_block<Schedule>>::value.leaf_phase[fault_in<Schedule>::value.d.cell],
                      typename at_block<Schedule>::phases>::type;
template <class Schedule, fault What> struct verdict;
template <class Schedule> struct verdict<Schedule, fault::none> {};
template <class Schedule> struct verdict<Schedule, fault::unwritten_read> {
  static_assert(
      sizeof(error::unwritten_read<typename Schedule::policy, at_noun<Schedule>, met_in<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::weight_before_input> {
  static_assert(
      sizeof(error::weight_before_input<typename Schedule::policy, at_noun<Schedule>, met_in<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::race> {
  static_assert(sizeof(
      error::race<typename Schedule::policy, at_noun<Schedule>, met_in<Schedule>, other_noun<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::read_after_release> {
  static_assert(sizeof(error::read_after_release<typename Schedule::policy, at_noun<Schedule>,
                                                 met_in<Schedule>, other_noun<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::wait_on_later> {
  static_assert(
      sizeof(error::wait_on_later<typename Schedule::policy, at_noun<Schedule>, other_noun<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::missing_node> {
  static_assert(sizeof(error::missing_node<typename Schedule::policy, at_pass<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::doubled_node> {
  static_assert(sizeof(error::doubled_node<typename Schedule::policy, at_pass<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::missing_cut> {
  static_assert(
      sizeof(error::missing_cut<typename Schedule::policy, at_phase<Schedule>, other_phase<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::not_a_policy> {
  static_assert(sizeof(error::not_a_policy<Schedule, typename Schedule::policies>));
};
template <class Schedule> struct verdict<Schedule, fault::no_backward_weight> {
  static_assert(sizeof(error::no_backward_weight<typename Schedule::policy, at_phase<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::mixed_backward> {
  static_assert(sizeof(error::mixed_backward<at_block<Schedule>, at_phase<Schedule>, other_phase<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::written_twice> {
  static_assert(sizeof(error::written_twice<at_block<Schedule>, at_phase<Schedule>, other_phase<Schedule>,
                                            at_root<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::objective_read> {
  static_assert(sizeof(error::objective_read<at_block<Schedule>, at_phase<Schedule>, at_root<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::input_of_two_nodes> {
  static_assert(sizeof(error::input_of_two_nodes<at_block<Schedule>, at_phase<Schedule>,
                                                 other_phase<Schedule>, at_leaf<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::aliased_wrongly> {
  static_assert(sizeof(error::aliased_wrongly<at_block<Schedule>, at_phase<Schedule>, at_root<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::recompute_spans_cut> {
  static_assert(sizeof(error::recompute_spans_cut<at_block<Schedule>, at_phase<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::carried_wrongly> {
  static_assert(sizeof(
      error::carried_wrongly<
          at_block<Schedule>,
          typename value_at<fault_in<Schedule>::value.d.cell, typename at_block<Schedule>::carries>::type>));
};
template <class Schedule> struct verdict<Schedule, fault::never_produced> {
  static_assert(sizeof(error::never_produced<at_block<Schedule>, at_reader<Schedule>, at_leaf<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::metadata_crosses> {
  static_assert(sizeof(error::metadata_crosses<at_block<Schedule>, at_reader<Schedule>, at_leaf<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::backward_leaves_lane> {
  static constexpr diagnosis d = fault_in<Schedule>::value.d;
  using before = typename decltype(op_noun<at_block<Schedule>, pass::forward, d.at,
                                           static_cast<lane>(d.cell / lane_count)>())::type;
  using leaving = typename decltype(op_noun<at_block<Schedule>, static_cast<pass>(d.other), d.at,
                                            static_cast<lane>(d.cell % lane_count)>())::type;
  static_assert(sizeof(error::backward_leaves_lane<typename Schedule::policy, before, leaving>));
};
template <class Schedule> struct verdict<Schedule, fault::too_many_in_flight> {
  static_assert(sizeof(
      error::too_many_in_flight<typename Schedule::policy, limited_at<Schedule>, allowed_at<Schedule>>));
};
template <class Schedule> struct verdict<Schedule, fault::too_large> {
  static_assert(sizeof(error::too_large<Schedule>));
};

/// What keeps an executor from running the phases of a model, and the phase, if it is one.
struct phase_finding {
  fault what = fault::none;
  int block = -1;
  int phase = -1;
};
/// Whether a gradient may come back from the reader of leaf `r`: autograd has none where the reader's node hands on no tensor.
constexpr bool hands_back(block_facts const& f, int r) {
  if (f.has_explicit_backward[f.leaf_phase[r]]) return true;
  for (int v = 0; v < f.roots; ++v)
    if (f.node_of[f.root_writer[v]] == f.node_of[f.leaf_phase[r]] && !f.root_is_metadata[v]) return true;
  return false;
}
/// Whether a gradient comes back for root `v` of block `at`: some phase of that block, or of any where the root leaves it, reads it
/// and hands it back.
constexpr bool gets_gradient(block_facts const* const* all, int blocks, int at, int v) {
  block_facts const& writer = *all[at];
  for (int b = 0; b < blocks; ++b)
    for (int r = 0; r < all[b]->leaves; ++r) {
      int const i = all[b]->leaf_input[r];
      bool const reads = i >= 0 ? writer.root_is_output[v] && all[b]->input[i] == writer.root[v]
                                : b == at && all[b]->leaf_root[r] == v;
      if (reads && hands_back(*all[b], r)) return true;
    }
  return false;
}
/// Whether backward may begin in a phase of block `at`: it writes an objective, or its backward is written by hand and waits for no
/// gradient.
constexpr bool starts_backward(block_facts const* const* all, int blocks, int at, int phase) {
  block_facts const& f = *all[at];
  bool waits = false;
  for (int v = 0; v < f.roots; ++v) {
    if (f.root_writer[v] != phase) continue;
    if (f.root_is_objective[v]) return true;
    waits = waits || (!f.root_is_metadata[v] && gets_gradient(all, blocks, at, v));
  }
  return f.has_explicit_backward[phase] && !waits;
}
template <class Model, int... Types>
constexpr phase_finding find_unrunnable(bool differentiates, std::integer_sequence<int, Types...>) {
  block_facts const* const all[] = {&dataflow_of<typename Model::template block<Types>>::value..., nullptr};
  bool by_autograd = false, starts = false;
  for (int k = 0; k < Model::count; ++k)
    for (int p = 0; p < all[k]->phases; ++p) {
      if (!all[k]->has_forward[p]) return {fault::no_forward, k, p};
      if (!all[k]->has_explicit_backward[p] && !differentiates) return {fault::needs_autograd, k, p};
      by_autograd |= !all[k]->has_explicit_backward[p];
      starts |= starts_backward(all, Model::count, k, p);
    }
  // Backwards all written by hand start wherever they like.
  return {by_autograd && !starts ? fault::no_objective : fault::none};
}
template <class Schedule, class Tensors> struct unrunnable_in {
  static constexpr phase_finding value = find_unrunnable<typename Schedule::model>(
      autograd_tensor_adapter<Tensors>, std::make_integer_sequence<int, Schedule::model::count>{});
};
template <class Schedule, class Tensors, class At = unrunnable_in<Schedule, Tensors>>
using unrunnable_phase =
    typename phase_at<At::value.phase,
                      typename Schedule::model::template block<At::value.block>::phases>::type;
template <class Schedule, class Tensors>
inline constexpr bool can_run = unrunnable_in<Schedule, Tensors>::value.phase < 0;

template <class Schedule, class Tensors, fault What = unrunnable_in<Schedule, Tensors>::value.what>
struct tensors_verdict {};
template <class Schedule, class Tensors> struct tensors_verdict<Schedule, Tensors, fault::no_forward> {
  static_assert(sizeof(error::no_forward<unrunnable_phase<Schedule, Tensors>>));
};
template <class Schedule, class Tensors> struct tensors_verdict<Schedule, Tensors, fault::needs_autograd> {
  static_assert(sizeof(error::needs_autograd<unrunnable_phase<Schedule, Tensors>, Tensors>));
};
template <class Schedule, class Tensors> struct tensors_verdict<Schedule, Tensors, fault::no_objective> {
  static_assert(sizeof(error::no_objective<typename Schedule::model, Tensors>));
};

} // namespace detail

/// `static_assert(proof<Schedule>::holds)` stops the compiler with the sentence of the broken rule if `Schedule` is illegal.
template <class Schedule> struct proof : detail::verdict<Schedule, detail::fault_in<Schedule>::value.d.what> {
  static constexpr bool holds = detail::fault_in<Schedule>::value.d.what == fault::none;
};

/// The program of an overlapped pair: a forward layer of one block type beside a backward layer of another. That of an illegal
/// `Schedule` does not compile.
template <class Schedule, int Forward = 0, int Backward = Forward>
inline constexpr auto const&
    pair_program = (void(detail::verdict<Schedule, detail::fault_in<Schedule>::value.d.what>{}),
                    body_of<Schedule, form::forward_backward, Forward, Backward>::value);

} // namespace v0
} // namespace stretto
