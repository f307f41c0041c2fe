#pragma once

// First, for a short list of includers in the compiler's message.
#include <stretto/error.hpp>

#include <stretto/adapter.hpp>
#include <stretto/block_types.hpp>
#include <stretto/schedule.hpp>

/// The compile-time proof of a schedule: its blocks, the values between them, and every body. A schedule that fails stops
/// the compiler with one sentence and the names of what is wrong.
namespace stretto {
inline namespace v0 {
namespace detail {

/// A diagnosis, and the body in which it was found.
struct finding {
  diagnosis d{};
  form in = form::forward;
  body_blocks blocks{-1, -1};
};

/// A phase with weights whose backward is written by hand must be written in halves if anything runs the halves, and if
/// it has one of them.
template <class... Ph> constexpr diagnosis check_halves(block_facts const& f, int block, bool splits, phase_list<Ph...>) {
  bool const whole[] = {has_named_members<Ph>::backward..., true};
  for (int p = 0; p < f.phases; ++p)
    if (f.has_weights[p] && f.has_explicit_backward[p] && !f.has_backward_weight[p] && (splits || !whole[p]))
      return {fault::no_backward_weight, p, -1, -1, block};
  return {};
}

/// The phases of a node have all a backward of their own, or none has.
constexpr diagnosis check_nodes(block_facts const& f, int block) {
  for (int p = 1; p < f.phases; ++p)
    if (f.node_of[p] == f.node_of[p - 1] && f.has_explicit_backward[p] != f.has_explicit_backward[p - 1])
      return {fault::mixed_backward, p - 1, p, -1, block};
  return {};
}

constexpr void keep_first(finding& first, diagnosis const& d, form in, body_blocks blocks) {
  if (!first.d && d) first = {d, in, blocks};
}

template <class S, int K> constexpr void prove_block(finding& first) {
  using block = typename S::model::template block<K>;
  block_facts const& f = dataflow_of<block>::value;
  bool const splits = S::splits || S::rank_plan::splits;
  keep_first(first, check_block(f, K), form::forward, {K, -1});
  if (first.d.what == fault::too_large) return;
  keep_first(first, check_nodes(f, K), form::backward, {-1, K});
  keep_first(first, check_halves(f, K, splits, typename block::phases{}), form::backward_input, {-1, K});
}

template <class S, int K> constexpr void prove_lone_bodies(finding& first) {
  keep_first(first, draft_of<S, form::forward, K, -1>::value.problem, form::forward, {K, -1});
  keep_first(first, draft_of<S, form::backward, -1, K>::value.problem, form::backward, {-1, K});
  if constexpr (S::rank_plan::splits) {
    keep_first(first, draft_of<S, form::backward_input, -1, K>::value.problem, form::backward_input, {-1, K});
    keep_first(first, draft_of<S, form::backward_weight, -1, K>::value.problem, form::backward_weight, {-1, K});
  }
}

template <class S, int Pair> constexpr void prove_pair_body(finding& first) {
  constexpr int f = Pair / S::model::count, b = Pair % S::model::count;
  if constexpr (meets_in_pairs<typename S::model, f>() && meets_in_pairs<typename S::model, b>())
    keep_first(first, draft_of<S, form::forward_backward, f, b>::value.problem, form::forward_backward, {f, b});
}

template <class S, int... K> constexpr finding find_in_model(std::integer_sequence<int, K...>) {
  finding first;
  (prove_block<S, K>(first), ...);
  diagnosis const chain = check_chain(chain_of<typename S::model>::value);
  keep_first(first, chain, form::forward, {chain.block, -1});
  return first;
}
template <class S, int... K> constexpr finding find_in_lone_bodies(std::integer_sequence<int, K...>) {
  finding first;
  (prove_lone_bodies<S, K>(first), ...);
  return first;
}
template <class S, int... Pair> constexpr finding find_in_pair_bodies(std::integer_sequence<int, Pair...>) {
  finding first;
  (prove_pair_body<S, Pair>(first), ...);
  return first;
}

/// A node that is tied to its lane takes one in all bodies. `at` is its phase, `other` the pass that leaves, `cell` the lane
/// of the forward, and behind it that of the other.
constexpr diagnosis check_lanes(draft const& forward, draft const& backward, int block) {
  for (int b = 0; b < backward.count; ++b)
    for (int f = 0; f < forward.count && backward.ops[b].touches.keeps_lane; ++f) {
      op const &mine = backward.ops[b], &before = forward.ops[f];
      if (before.is_port() || mine.is_forward() || !before.is_forward() || mine.node != before.node) continue;
      if (leaves_lane(before, mine))
        return {fault::backward_leaves_lane, mine.node, static_cast<int>(mine.what),
                index_of(before.on) * lane_count + index_of(mine.on), block};
    }
  return {};
}
template <class S, int K> constexpr void prove_lanes(finding& first) {
  draft const& forward = draft_of<S, form::forward, K, -1>::value;
  draft const& backward = draft_of<S, form::backward, -1, K>::value;
  draft const* pair = nullptr;
  if constexpr (S::rank_plan::pairs && meets_in_pairs<typename S::model, K>())
    pair = &draft_of<S, form::forward_backward, K, K>::value;
  for (draft const* f : {&forward, pair})
    for (draft const* b : {&backward, pair})
      if (f && b) keep_first(first, check_lanes(*f, *b, K), form::backward, {-1, K});
}
template <class S, int... K> constexpr finding find_left_lane(std::integer_sequence<int, K...>) {
  finding first;
  (prove_lanes<S, K>(first), ...);
  return first;
}

/// Bodies make sense only over blocks that are sound, so the model comes first.
template <class S> constexpr finding find_fault() {
  constexpr int n = S::model::count;
  constexpr finding in_model = find_in_model<S>(std::make_integer_sequence<int, n>{});
  if constexpr (!S::fits) {
    return finding{{fault::not_a_policy}};
  } else if constexpr (in_model.d.what != fault::none) {
    return in_model;
  } else {
    finding found;
    // The pair shows a policy's mistakes best; a pipeline without pairs never runs it.
    if constexpr (S::rank_plan::pairs) found = find_in_pair_bodies<S>(std::make_integer_sequence<int, n * n>{});
    if (!found.d) found = find_in_lone_bodies<S>(std::make_integer_sequence<int, n>{});
    if (!found.d) found = find_left_lane<S>(std::make_integer_sequence<int, n>{});
    return found;
  }
}

template <class S> struct fault_in {
  static constexpr finding value = find_fault<S>();
};

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
template <class S> constexpr int allowed() {
  constexpr finding found = fault_in<S>::value;
  return draft_of<S, found.in, found.blocks.forward, found.blocks.backward>::value.ops[found.d.at].touches.in_flight;
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
  static_assert(sizeof(error::too_many_in_flight<typename S::policy, at_noun<S>, allowed_at<S>>));
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
