#pragma once

#include <stretto/block.hpp>
#include <stretto/error.hpp>
#include <stretto/program.hpp>

/// From the numbers in the dataflow of a block back to the types that the user wrote.
namespace stretto {
inline namespace v0 {
namespace detail {

template <class A, class B> struct joined;
template <class... A, class... B> struct joined<values<A...>, values<B...>> {
  using type = values<A..., B...>;
};
template <class Phases> struct written;
template <> struct written<phase_list<>> {
  using type = values<>;
};
template <class Ph, class... Rest>
struct written<phase_list<Ph, Rest...>> : joined<typename Ph::writes, typename written<phase_list<Rest...>>::type> {};

/// The type of root `V` of block type `B`.
template <class B, int V> using root_type = typename value_at<V, typename written<typename B::phases>::type>::type;
/// The type of leaf `R`: reads come phase by phase, in the order of their lists.
template <class B, int R, class Phases = typename B::phases> struct leaf_type;
template <class B, int R, class Ph, class... Rest> struct leaf_type<B, R, phase_list<Ph, Rest...>> {
  template <class... V> static constexpr int size(values<V...>) { return sizeof...(V); }
  static constexpr int own = size(typename Ph::reads{});
  template <bool Here, class Dummy = void> struct pick : value_at<R, typename Ph::reads> {};
  template <class Dummy> struct pick<false, Dummy> : leaf_type<B, R - own, phase_list<Rest...>> {};
  using type = typename pick<(R < own)>::type;
};


template <class B, int Node>
using node_phase = typename phase_at<dataflow_of<B>::value.first_phase_of(Node), typename B::phases>::type;

/// The noun for a cell of a group that belongs to a layer of block type `B` (`void`: the layer behind).
template <class B, int Cell> constexpr auto cell_noun() {
  if constexpr (Cell < cells::first_root || cells::is_boundary(Cell) || std::same_as<B, void>) {
    return std::type_identity<error::the_handover_between_layers>{};
  } else if constexpr (cells::is_root(Cell)) {
    return std::type_identity<error::the_value<root_type<B, Cell - cells::first_root>>>{};
  } else if constexpr (cells::is_leaf_gradient(Cell)) {
    return std::type_identity<error::the_gradient_of<typename leaf_type<B, Cell - cells::first_leaf_gradient>::type>>{};
  } else if constexpr (cells::is_context(Cell)) {
    return std::type_identity<error::what_forward_keeps_for_backward_of<node_phase<B, Cell - cells::first_context>>>{};
  } else {
    return std::type_identity<error::what_backward_input_keeps_for_weight_of<node_phase<B, Cell - cells::first_pending>>>{};
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace stretto
