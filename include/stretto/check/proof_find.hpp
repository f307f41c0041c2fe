#pragma once

// First, for a short list of includers in the compiler's message.
#include <stretto/error.hpp>

#include <stretto/adapter.hpp>
#include <stretto/block/types.hpp>
#include <stretto/schedule.hpp>

/// What the proof of a schedule finds: the first thing that is wrong with its blocks, the values between them, or a body.
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
template <class... Ph>
constexpr diagnosis check_halves(block_facts const& f, int block, bool splits, phase_list<Ph...>) {
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

template <class Schedule, int Type> constexpr void prove_block(finding& first) {
  using block = typename Schedule::model::template block<Type>;
  block_facts const& f = dataflow_of<block>::value;
  bool const splits = Schedule::splits || Schedule::rank_plan::splits;
  keep_first(first, check_block(f, Type), form::forward, {Type, -1});
  if (first.d.what == fault::too_large) return;
  keep_first(first, check_nodes(f, Type), form::backward, {-1, Type});
  keep_first(first, check_halves(f, Type, splits, typename block::phases{}), form::backward_input,
             {-1, Type});
}

template <class Schedule, int Type> constexpr void prove_lone_bodies(finding& first) {
  keep_first(first, draft_of<Schedule, form::forward, Type, -1>::value.problem, form::forward, {Type, -1});
  keep_first(first, draft_of<Schedule, form::backward, -1, Type>::value.problem, form::backward, {-1, Type});
  if constexpr (Schedule::rank_plan::splits) {
    keep_first(first, draft_of<Schedule, form::backward_input, -1, Type>::value.problem, form::backward_input,
               {-1, Type});
    keep_first(first, draft_of<Schedule, form::backward_weight, -1, Type>::value.problem,
               form::backward_weight, {-1, Type});
  }
}

template <class Schedule, int Pair> constexpr void prove_pair_body(finding& first) {
  constexpr int f = Pair / Schedule::model::count, b = Pair % Schedule::model::count;
  if constexpr (meets_in_pairs<typename Schedule::model, f>() &&
                meets_in_pairs<typename Schedule::model, b>())
    keep_first(first, draft_of<Schedule, form::forward_backward, f, b>::value.problem, form::forward_backward,
               {f, b});
}

template <class Schedule, int... Types>
constexpr finding find_in_model(std::integer_sequence<int, Types...>) {
  finding first;
  (prove_block<Schedule, Types>(first), ...);
  diagnosis const chain = check_chain(chain_of<typename Schedule::model>::value);
  // A value that nobody writes may have two readers as well; handing it on would not help.
  if (chain && first.d.what == fault::input_of_two_nodes) first.d = {};
  keep_first(first, chain, form::forward, {chain.block, -1});
  return first;
}
template <class Schedule, int... Types>
constexpr finding find_in_lone_bodies(std::integer_sequence<int, Types...>) {
  finding first;
  (prove_lone_bodies<Schedule, Types>(first), ...);
  return first;
}
template <class Schedule, int... Pair>
constexpr finding find_in_pair_bodies(std::integer_sequence<int, Pair...>) {
  finding first;
  (prove_pair_body<Schedule, Pair>(first), ...);
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
template <class Schedule, int Type> constexpr void prove_lanes(finding& first) {
  draft const& forward = draft_of<Schedule, form::forward, Type, -1>::value;
  draft const& backward = draft_of<Schedule, form::backward, -1, Type>::value;
  // Without pairs the lone ones again: under the undefined-behaviour sanitizer g++ 12 does not compare these addresses with null.
  draft const *f_pair = &forward, *b_pair = &backward;
  if constexpr (Schedule::rank_plan::pairs && meets_in_pairs<typename Schedule::model, Type>())
    f_pair = b_pair = &draft_of<Schedule, form::forward_backward, Type, Type>::value;
  for (draft const* f : {&forward, f_pair})
    for (draft const* b : {&backward, b_pair})
      keep_first(first, check_lanes(*f, *b, Type), form::backward, {-1, Type});
}
template <class Schedule, int... Types>
constexpr finding find_left_lane(std::integer_sequence<int, Types...>) {
  finding first;
  (prove_lanes<Schedule, Types>(first), ...);
  return first;
}

/// Bodies make sense only over blocks that are sound, so the model comes first.
template <class Schedule> constexpr finding find_fault() {
  constexpr int n = Schedule::model::count;
  constexpr finding in_model = find_in_model<Schedule>(std::make_integer_sequence<int, n>{});
  if constexpr (refused<typename Schedule::model>) {
    return finding{};
  } else if constexpr (!Schedule::fits) {
    return finding{{fault::not_a_policy}};
  } else if constexpr (in_model.d.what != fault::none) {
    return in_model;
  } else {
    finding found;
    // The pair shows a policy's mistakes best; a pipeline without pairs never runs it.
    if constexpr (Schedule::rank_plan::pairs)
      found = find_in_pair_bodies<Schedule>(std::make_integer_sequence<int, n * n>{});
    if (!found.d) found = find_in_lone_bodies<Schedule>(std::make_integer_sequence<int, n>{});
    if (!found.d) found = find_left_lane<Schedule>(std::make_integer_sequence<int, n>{});
    return found;
  }
}

template <class Schedule> struct fault_in { static constexpr finding value = find_fault<Schedule>(); };

} // namespace detail
} // namespace v0
} // namespace stretto
