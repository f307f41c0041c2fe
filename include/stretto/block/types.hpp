#pragma once

#include <stretto/block.hpp>
#include <stretto/error.hpp>
#include <stretto/program.hpp>

/// From the numbers in the dataflow of a block back to the types that the user wrote.
namespace stretto {
inline namespace v0 {
namespace detail {

template <class First, class Second> struct joined;
template <class... First, class... Second> struct joined<values<First...>, values<Second...>> {
  using type = values<First..., Second...>;
};
template <class Phases> struct written;
template <> struct written<phase_list<>> { using type = values<>; };
template <class Ph, class... Rest>
struct written<phase_list<Ph, Rest...>>
    : joined<typename Ph::writes, typename written<phase_list<Rest...>>::type> {};

/// The type of root `Root` of block type `Block`.
template <class Block, int Root>
using root_type = typename value_at<Root, typename written<typename Block::phases>::type>::type;
/// The type of leaf `Leaf`: reads come phase by phase, in the order of their lists.
template <class Block, int Leaf, class Phases = typename Block::phases> struct leaf_type;
template <class Block, int Leaf, class Ph, class... Rest>
struct leaf_type<Block, Leaf, phase_list<Ph, Rest...>> {
  template <class... Values> static constexpr int size(values<Values...>) { return sizeof...(Values); }
  static constexpr int own = size(typename Ph::reads{});
  template <bool Here, class Dummy = void> struct pick : value_at<Leaf, typename Ph::reads> {};
  template <class Dummy> struct pick<false, Dummy> : leaf_type<Block, Leaf - own, phase_list<Rest...>> {};
  using type = typename pick<(Leaf < own)>::type;
};

template <class Block, int Node>
using node_phase =
    typename phase_at<dataflow_of<Block>::value.first_phase_of(Node), typename Block::phases>::type;

/// The noun for a cell of a group that belongs to a layer of type `Block` (`void`: the layer behind).
template <class Block, int Cell> constexpr auto cell_noun() {
  if constexpr (Cell < cells::first_root || cells::is_boundary(Cell) || std::same_as<Block, void>) {
    return std::type_identity<error::the_handover_between_layers>{};
  } else if constexpr (cells::is_root(Cell)) {
    return std::type_identity<error::the_value<root_type<Block, Cell - cells::first_root>>>{};
  } else if constexpr (cells::is_leaf_gradient(Cell)) {
    return std::type_identity<
        error::the_gradient_of<typename leaf_type<Block, Cell - cells::first_leaf_gradient>::type>>{};
  } else if constexpr (cells::is_context(Cell)) {
    return std::type_identity<
        error::what_forward_keeps_for_backward_of<node_phase<Block, Cell - cells::first_context>>>{};
  } else {
    return std::type_identity<
        error::what_backward_input_keeps_for_weight_of<node_phase<Block, Cell - cells::first_pending>>>{};
  }
}

} // namespace detail
} // namespace v0
} // namespace stretto
