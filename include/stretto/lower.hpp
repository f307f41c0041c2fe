#pragma once

#include <stretto/flatten.hpp>
#include <stretto/ports.hpp>
#include <stretto/releases.hpp>
#include <stretto/schedule.hpp>

/// From the plan of one rank to what it issues: the bodies of its schedule, pasted at their ports.
namespace stretto {
inline namespace v0 {

namespace detail {

template <class S, form F, int Forward, int Backward> constexpr body_rows rows_of() {
  using body = body_of<S, F, Forward, Backward>;
  return {body::value.ops, body::size, forward_export(body::value), backward_export(body::value)};
}

template <class S, int... K> body_rows find_lone_rows(form f, int type, std::integer_sequence<int, K...>) {
  body_rows found;
  auto pick = [&]<int Type>(std::integral_constant<int, Type>) {
    if (f == form::forward) found = rows_of<S, form::forward, Type, -1>();
    if (f == form::backward) found = rows_of<S, form::backward, -1, Type>();
    if constexpr (S::rank_plan::splits) {
      if (f == form::backward_input) found = rows_of<S, form::backward_input, -1, Type>();
      if (f == form::backward_weight) found = rows_of<S, form::backward_weight, -1, Type>();
    }
  };
  ((type == K ? pick(std::integral_constant<int, K>{}) : void()), ...);
  return found;
}
template <class S, int... Pair> body_rows find_pair_rows(int pair, std::integer_sequence<int, Pair...>) {
  constexpr int n = S::model::count;
  body_rows found;
  auto pick = [&found]<int Type>(std::integral_constant<int, Type>) {
    if constexpr (meets_in_pairs<typename S::model, Type / n>() && meets_in_pairs<typename S::model, Type % n>())
      found = rows_of<S, form::forward_backward, Type / n, Type % n>();
  };
  ((pair == Pair ? pick(std::integral_constant<int, Pair>{}) : void()), ...);
  return found;
}

/// The compiled rows of a body, by its run-time form and block types.
template <class S> body_rows find_rows(form f, int forward_type, int backward_type) {
  constexpr int n = S::model::count;
  if (f != form::forward_backward)
    return find_lone_rows<S>(f, f == form::forward ? forward_type : backward_type, std::make_integer_sequence<int, n>{});
  if constexpr (S::rank_plan::pairs)
    return find_pair_rows<S>(forward_type * n + backward_type, std::make_integer_sequence<int, n * n>{});
  else
    return {};
}

}  // namespace detail

/// Lowers the placed list of one rank over its layers (see `layer_list`) for schedule `S`.
template <class S, class Layers>
issue_list lower(placed_steps const& placed, Layers const& layers, chain_layout const& layout) {
  detail::flattener flat(layout, chain_of<typename S::model>::value, layers.size(), placed.slots);
  for (placed_step const& p : placed.steps) {
    if (p.is_receive) {
      flat.receive(p);
      continue;
    }
    flat.begin(p);
    auto const pairs = [&layers](int l) { return detail::runs_in_pairs<typename S::model>(layers[l].type); };
    for_each_body(p.what, layers, pairs, [&](body_call const& body) {
      int const f = body.forward_layer < 0 ? -1 : layers[body.forward_layer].type;
      int const b = body.backward_layer < 0 ? -1 : layers[body.backward_layer].type;
      flat.paste(detail::find_rows<S>(body.what, f, b), body, p);
    });
    flat.end(p);
  }
  return flat.take();
}

/// The releases of a lowered table of schedule `S`, in the order of its rows.
template <class S, class Layers>
std::vector<release> plan_releases(flat_table const& table, chain_layout const& layout, Layers const& layers) {
  std::vector<int> type(static_cast<unsigned>(layout.points()), -1);
  for (int l = 0; l < layers.size(); ++l) type[static_cast<unsigned>(layout.point(l))] = layers[l].type;
  release_planner planner(table.ops.data(), static_cast<int>(table.ops.size()), table.groups);
  return planner.plan([&](int group, int cell) {
    int const k = type[static_cast<unsigned>(group % layout.points())];
    if (k < 0 || cell < 8 || cell >= 24) return false;
    return detail::facts_at<typename S::model>(k, std::make_integer_sequence<int, S::model::count>{})
        ->root_is_metadata[cell - 8];
  });
}

}  // namespace v0
}  // namespace stretto
