#pragma once

// First, for a short list of includers in the compiler's message.
#include <stretto/error.hpp>

#include <stretto/proof_find.hpp>

/// The compile-time proof of a schedule: its blocks, the values between them, and every body. A schedule that fails stops
/// the compiler with one sentence and the names of what is wrong.
namespace stretto {
inline namespace v0 {
namespace detail {

// From here on only what a failed proof needs: row and cell numbers become the user's own types again.

template <class B, pass What, int Node, lane On> constexpr auto op_noun() {
  return std::type_identity<error::op_at<What, node_phase<B, Node>, On, B>>{};
}
template <class S, int Row> constexpr auto row_noun() {
  constexpr finding found = fault_in<S>::value;
  constexpr op o = draft_of<S, found.in, found.blocks.forward, found.blocks.backward>::value.ops[Row];
  if constexpr (o.is_port())
    return std::type_identity<error::outside_of_this_layer>{};
  else
    return op_noun<typename S::model::template block<o.block>, o.what, o.node, o.on>();
}
template <class S> constexpr auto cell_noun_of() {
  constexpr finding found = fault_in<S>::value;
  constexpr op o = draft_of<S, found.in, found.blocks.forward, found.blocks.backward>::value.ops[found.d.at];
  constexpr cell_set mine = o.touches.reads | o.touches.writes | o.touches.clears;
  if constexpr ((mine >> found.d.cell & 1) != 0)
    return cell_noun<typename S::model::template block<o.block>, found.d.cell>();
  else
    return cell_noun<void, found.d.cell>();
}
template <class S, int Index> constexpr auto phase_noun() {
  using block = typename S::model::template block<fault_in<S>::value.d.block>;
  return std::type_identity<typename phase_at<Index, typename block::phases>::type>{};
}

// Alias templates rather than base classes: every level of instantiation costs lines in the compiler's message.
template <class S> using at_noun = typename decltype(row_noun<S, fault_in<S>::value.d.at>())::type;
template <class S> using other_noun = typename decltype(row_noun<S, fault_in<S>::value.d.other>())::type;
template <class S> using met_in = typename decltype(cell_noun_of<S>())::type;
/// The phase that has too many microbatches in flight, and how many it allows.
template <class S> constexpr auto limited_noun() {
  constexpr finding found = fault_in<S>::value;
  constexpr op o = draft_of<S, found.in, found.blocks.forward, found.blocks.backward>::value.ops[found.d.at];
  using block = typename S::model::template block<o.block>;
  constexpr int phase = dataflow_of<block>::value.find_limited(o.node, chain_of<typename S::model>::value.limited[found.d.cell]);
  return std::type_identity<error::op_at<o.what, typename phase_at<phase, typename block::phases>::type, o.on, block>>{};
}
template <class S> using limited_at = typename decltype(limited_noun<S>())::type;
template <class S> constexpr int allowed() {
  constexpr finding found = fault_in<S>::value;
  constexpr draft const& body = draft_of<S, found.in, found.blocks.forward, found.blocks.backward>::value;
  return body.ops[found.d.at].touches.in_flight[found.d.cell];
}
template <class S> using allowed_at = error::which_allows<allowed<S>()>;
template <class S> using at_phase = typename decltype(phase_noun<S, fault_in<S>::value.d.at>())::type;
template <class S> using other_phase = typename decltype(phase_noun<S, fault_in<S>::value.d.other>())::type;
template <class S> using at_pass = error::pass_of<static_cast<pass>(fault_in<S>::value.d.cell), at_phase<S>>;
template <class S> using at_block = typename S::model::template block<fault_in<S>::value.d.block>;
template <class S> using at_root = root_type<at_block<S>, fault_in<S>::value.d.cell>;
template <class S> using at_leaf = typename leaf_type<at_block<S>, fault_in<S>::value.d.cell>::type;

template <class S>
using at_reader = typename phase_at<dataflow_of<at_block<S>>::value.leaf_phase[fault_in<S>::value.d.cell],
                                    typename at_block<S>::phases>::type;
template <class S, fault What> struct verdict;
template <class S> struct verdict<S, fault::none> {};
template <class S> struct verdict<S, fault::unwritten_read> {
  static_assert(sizeof(error::unwritten_read<typename S::policy, at_noun<S>, met_in<S>>));
};
template <class S> struct verdict<S, fault::weight_before_input> {
  static_assert(sizeof(error::weight_before_input<typename S::policy, at_noun<S>, met_in<S>>));
};
template <class S> struct verdict<S, fault::race> {
  static_assert(sizeof(error::race<typename S::policy, at_noun<S>, met_in<S>, other_noun<S>>));
};
template <class S> struct verdict<S, fault::read_after_release> {
  static_assert(sizeof(error::read_after_release<typename S::policy, at_noun<S>, met_in<S>, other_noun<S>>));
};
template <class S> struct verdict<S, fault::wait_on_later> {
  static_assert(sizeof(error::wait_on_later<typename S::policy, at_noun<S>, other_noun<S>>));
};
template <class S> struct verdict<S, fault::missing_node> {
  static_assert(sizeof(error::missing_node<typename S::policy, at_pass<S>>));
};
template <class S> struct verdict<S, fault::doubled_node> {
  static_assert(sizeof(error::doubled_node<typename S::policy, at_pass<S>>));
};
template <class S> struct verdict<S, fault::missing_cut> {
  static_assert(sizeof(error::missing_cut<typename S::policy, at_phase<S>, other_phase<S>>));
};
template <class S> struct verdict<S, fault::not_a_policy> {
  static_assert(sizeof(error::not_a_policy<S, typename S::policies>));
};
template <class S> struct verdict<S, fault::no_backward_weight> {
  static_assert(sizeof(error::no_backward_weight<typename S::policy, at_phase<S>>));
};
template <class S> struct verdict<S, fault::mixed_backward> {
  static_assert(sizeof(error::mixed_backward<at_block<S>, at_phase<S>, other_phase<S>>));
};
template <class S> struct verdict<S, fault::written_twice> {
  static_assert(sizeof(error::written_twice<at_block<S>, at_phase<S>, other_phase<S>, at_root<S>>));
};
template <class S> struct verdict<S, fault::objective_read> {
  static_assert(sizeof(error::objective_read<at_block<S>, at_phase<S>, at_root<S>>));
};
template <class S> struct verdict<S, fault::input_of_two_nodes> {
  static_assert(sizeof(error::input_of_two_nodes<at_block<S>, at_phase<S>, other_phase<S>, at_leaf<S>>));
};
template <class S> struct verdict<S, fault::aliased_wrongly> {
  static_assert(sizeof(error::aliased_wrongly<at_block<S>, at_phase<S>, at_root<S>>));
};
template <class S> struct verdict<S, fault::recompute_spans_cut> {
  static_assert(sizeof(error::recompute_spans_cut<at_block<S>, at_phase<S>>));
};
template <class S> struct verdict<S, fault::carried_wrongly> {
  static_assert(sizeof(
      error::carried_wrongly<at_block<S>, typename value_at<fault_in<S>::value.d.cell, typename at_block<S>::carries>::type>));
};
template <class S> struct verdict<S, fault::never_produced> {
  static_assert(sizeof(error::never_produced<at_block<S>, at_reader<S>, at_leaf<S>>));
};
template <class S> struct verdict<S, fault::metadata_crosses> {
  static_assert(sizeof(error::metadata_crosses<at_block<S>, at_reader<S>, at_leaf<S>>));
};
template <class S> struct verdict<S, fault::backward_leaves_lane> {
  static constexpr diagnosis d = fault_in<S>::value.d;
  using before = typename decltype(op_noun<at_block<S>, pass::forward, d.at, static_cast<lane>(d.cell / lane_count)>())::type;
  using leaving =
      typename decltype(op_noun<at_block<S>, static_cast<pass>(d.other), d.at, static_cast<lane>(d.cell % lane_count)>())::type;
  static_assert(sizeof(error::backward_leaves_lane<typename S::policy, before, leaving>));
};
template <class S> struct verdict<S, fault::too_many_in_flight> {
  static_assert(sizeof(error::too_many_in_flight<typename S::policy, limited_at<S>, allowed_at<S>>));
};
template <class S> struct verdict<S, fault::too_large> {
  static_assert(sizeof(error::too_large<S>));
};

/// What keeps an executor from running the phases of a model, and the phase.
struct phase_finding {
  fault what = fault::none;
  int block = -1;
  int phase = -1;
};
template <class Model, int... K>
constexpr phase_finding find_unrunnable(bool differentiates, std::integer_sequence<int, K...>) {
  block_facts const* const all[] = {&dataflow_of<typename Model::template block<K>>::value..., nullptr};
  for (int k = 0; k < Model::count; ++k)
    for (int p = 0; p < all[k]->phases; ++p) {
      if (!all[k]->has_forward[p]) return {fault::no_forward, k, p};
      if (!all[k]->has_explicit_backward[p] && !differentiates) return {fault::needs_autograd, k, p};
    }
  return {};
}
template <class S, class Tensors> struct unrunnable_in {
  static constexpr phase_finding value =
      find_unrunnable<typename S::model>(autograd_tensor_adapter<Tensors>, std::make_integer_sequence<int, S::model::count>{});
};
template <class S, class Tensors, class At = unrunnable_in<S, Tensors>>
using unrunnable_phase = typename phase_at<At::value.phase, typename S::model::template block<At::value.block>::phases>::type;
template <class S, class Tensors> inline constexpr bool can_run = unrunnable_in<S, Tensors>::value.what == fault::none;

template <class S, class Tensors, fault What = unrunnable_in<S, Tensors>::value.what> struct tensors_verdict {};
template <class S, class Tensors> struct tensors_verdict<S, Tensors, fault::no_forward> {
  static_assert(sizeof(error::no_forward<unrunnable_phase<S, Tensors>>));
};
template <class S, class Tensors> struct tensors_verdict<S, Tensors, fault::needs_autograd> {
  static_assert(sizeof(error::needs_autograd<unrunnable_phase<S, Tensors>, Tensors>));
};

}  // namespace detail

/// `static_assert(proof<S>::holds)` stops the compiler with the sentence of the broken rule if schedule `S` is illegal.
template <class S> struct proof : detail::verdict<S, detail::fault_in<S>::value.d.what> {
  static constexpr bool holds = detail::fault_in<S>::value.d.what == fault::none;
};

}  // namespace v0
}  // namespace stretto
