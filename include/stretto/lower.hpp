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

/// Lowers the placed list of one rank over its layers (see `layer_list`). `meets(type)` says whether layers of a block type
/// meet others in pairs, `rows(form, type, type)` hands out the body of a forward and a backward layer (-1: none).
template <class Layers, class Meets, class Rows>
issue_list lower(placed_steps const& placed, chain_facts const& chain, Layers const& layers, chain_layout const& layout,
                 Meets&& meets, Rows&& rows) {
  detail::flattener flat(layout, chain, layers.size(), placed.slots);
  auto const type = [&layers](int l) { return l < 0 ? -1 : layers[l].type; };
  for (placed_step const& p : placed.steps) {
    if (p.is_receive) {
      flat.receive(p);
      continue;
    }
    flat.begin(p);
    for_each_body(p.what, layers, [&](int l) { return meets(type(l)); }, [&](body_call const& body) {
      flat.paste(rows(body.what, type(body.forward_layer), type(body.backward_layer)), body, p);
    });
    flat.end(p);
  }
  return flat.take();
}

/// The same for schedule `S`.
template <class S, class Layers>
issue_list lower(placed_steps const& placed, Layers const& layers, chain_layout const& layout) {
  return lower(placed, chain_of<typename S::model>::value, layers, layout, detail::runs_in_pairs<typename S::model>,
               detail::find_rows<S>);
}

/// The releases of a lowered table, in the order of its rows. `facts(type)` is the dataflow of a block type.
template <class Layers, class Facts>
std::vector<release> plan_releases(flat_table const& table, chain_layout const& layout, Layers const& layers, Facts&& facts) {
  std::vector<int> type(static_cast<unsigned>(layout.points()), -1);
  for (int l = 0; l < layers.size(); ++l) type[static_cast<unsigned>(layout.point(l))] = layers[l].type;
  release_planner planner(table.ops.data(), static_cast<int>(table.ops.size()), table.groups);
  return planner.plan([&](int group, int cell) {
    int const k = type[static_cast<unsigned>(group % layout.points())];
    block_facts const* const f = k < 0 || !cells::is_root(cell) ? nullptr : facts(k);
    return f != nullptr && f->root_is_metadata[cell - cells::first_root];
  });
}

/// The same for schedule `S`.
template <class S, class Layers>
std::vector<release> plan_releases(flat_table const& table, chain_layout const& layout, Layers const& layers) {
  return plan_releases(table, layout, layers, [](int type) {
    return detail::facts_at<typename S::model>(type, std::make_integer_sequence<int, S::model::count>{});
  });
}

}  // namespace v0
}  // namespace stretto
