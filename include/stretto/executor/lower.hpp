#pragma once

#include <stretto/executor/flatten.hpp>
#include <stretto/program/ports.hpp>
#include <stretto/program/releases.hpp>
#include <stretto/schedule.hpp>

/// From the plan of one rank to what it issues: the bodies of its schedule, pasted at their ports.
namespace stretto {
inline namespace v0 {
namespace detail {

template <class S, form F, int Forward, int Backward> constexpr body_rows rows_of() {
  using body = body_of<S, F, Forward, Backward>;
  return {body::value.ops, body::size, forward_export(body::value), backward_export(body::value)};
}
/// None where one of the two types never meets another in a pair.
template <class S, int Forward, int Backward> constexpr body_rows pair_rows() {
  if constexpr (meets_in_pairs<typename S::model, Forward>() && meets_in_pairs<typename S::model, Backward>())
    return rows_of<S, form::forward_backward, Forward, Backward>();
  else
    return {};
}

/// The rows of all bodies of one form: by block type, those of pairs by the types of both sides.
template <class S, form F, class Numbers> struct rows_of_form;
template <class S, form F, int... K> struct rows_of_form<S, F, std::integer_sequence<int, K...>> {
  static constexpr body_rows value[] = {
      rows_of<S, F, (has_forward(F) ? K : -1), (has_forward(F) ? -1 : K)>()...};
};
template <class S, int... Pair>
struct rows_of_form<S, form::forward_backward, std::integer_sequence<int, Pair...>> {
  static constexpr int n = S::model::count;
  static constexpr body_rows value[] = {pair_rows<S, Pair / n, Pair % n>()...};
};

/// The compiled rows of a body, by its run-time form and block types.
template <class S> STRETTO_COLD body_rows find_rows(form f, int forward_type, int backward_type) {
  constexpr int n = S::model::count;
  using types = std::make_integer_sequence<int, n>;
  if (f == form::forward) return rows_of_form<S, form::forward, types>::value[forward_type];
  if (f == form::backward) return rows_of_form<S, form::backward, types>::value[backward_type];
  if constexpr (S::rank_plan::splits) {
    if (f == form::backward_input) return rows_of_form<S, form::backward_input, types>::value[backward_type];
    if (f == form::backward_weight)
      return rows_of_form<S, form::backward_weight, types>::value[backward_type];
  }
  if constexpr (S::rank_plan::pairs) {
    using pairs = std::make_integer_sequence<int, n * n>;
    if (f == form::forward_backward)
      return rows_of_form<S, form::forward_backward, pairs>::value[forward_type * n + backward_type];
  }
  return {};
}

/// What lowering asks of a model and its policy. No template, so that names stay short; `of` is handed to each of the functions.
struct lowering_source {
  chain_facts const* chain;
  void const* of;
  block_facts const* (*facts)(void const* of, int type); ///< of a block type
  /// The body of a forward and a backward layer of these block types (-1: none).
  body_rows (*rows)(void const* of, form what, int forward, int backward);
};

/// That of schedule `S`, compiled.
template <class S> lowering_source source_of() {
  using model = typename S::model;
  return {&chain_of<model>::value, nullptr,
          [](void const*, int type) {
            return facts_at<model>(type, std::make_integer_sequence<int, model::count>{});
          },
          [](void const*, form what, int f, int b) { return find_rows<S>(what, f, b); }};
}

/// Lowers the placed list of one rank over its layers (see `layer_list`).
template <class Layers>
STRETTO_COLD issue_list lower(placed_steps const& placed, lowering_source const& from, Layers const& layers,
                              chain_layout const& layout) {
  flattener flat(layout, *from.chain, layers.size(), placed.slots);
  auto const type = [&layers](int l) { return l < 0 ? -1 : layers[l].type; };
  for (placed_step const& p : placed.steps) {
    if (p.is_receive) {
      flat.receive(p);
      continue;
    }
    flat.begin(p);
    auto const meets = [&](int l) { return meets_in_pairs(*from.facts(from.of, type(l)), *from.chain); };
    for_each_body(p.what, layers, meets, [&](body_call const& body) {
      flat.paste(from.rows(from.of, body.what, type(body.forward_layer), type(body.backward_layer)), body, p);
    });
    flat.end(p);
  }
  return flat.take();
}
/// The same for schedule `S`.
template <class S, class Layers>
issue_list lower(placed_steps const& placed, Layers const& layers, chain_layout const& layout) {
  return lower(placed, source_of<S>(), layers, layout);
}

/// The releases of a lowered table, in the order of its rows.
template <class Layers>
STRETTO_COLD sequence<release> plan_releases(flat_table const& table, lowering_source const& from,
                                             chain_layout const& layout, Layers const& layers) {
  // By point of the chain: what layer reads there.
  sequence<block_facts const*> facts(layout.points(), nullptr);
  for (int l = 0; l < layers.size(); ++l) facts[layout.point(l)] = from.facts(from.of, layers[l].type);
  release_planner planner(table.ops.data(), static_cast<int>(table.ops.size()), table.groups);
  auto const is_metadata = [](void const* of, int group, int cell) {
    auto const& at = *static_cast<sequence<block_facts const*> const*>(of);
    block_facts const* const f = at[static_cast<unsigned long>(group) % at.size()];
    return f != nullptr && cells::is_root(cell) && f->root_is_metadata[cell - cells::first_root];
  };
  return planner.plan({is_metadata, &facts});
}
/// The same for schedule `S`.
template <class S, class Layers>
sequence<release> plan_releases(flat_table const& table, chain_layout const& layout, Layers const& layers) {
  return plan_releases(table, source_of<S>(), layout, layers);
}

} // namespace detail
} // namespace v0
} // namespace stretto
