#pragma once

#include <stretto/block.hpp>
#include <stretto/check.hpp>

/// Compile-time errors: one struct a rule, named after it. Its arguments are the facts, as types the user knows; its body
/// is the sentence. This form shows both on g++, clang and nvcc.
namespace stretto {
inline namespace v0 {
namespace error {

template <class> inline constexpr bool never = false;

// Nouns, never defined: what an error is about.
template <pass What, class Phase, lane On> struct op_at;
template <class Value> struct the_value;
template <class Value> struct the_gradient_of;
template <class Phase> struct what_forward_keeps_for_backward_of;
template <class Phase> struct what_backward_input_keeps_for_weight_of;
template <pass What, class Phase> struct pass_of;
template <class... Policies> struct the_policies;
struct outside_of_this_layer;
struct the_handover_between_layers;

template <class Subject, class... Facts> struct unwritten_read {
  static_assert(never<Subject>, STRETTO_E01);
};
template <class Subject, class... Facts> struct race {
  static_assert(never<Subject>, STRETTO_E02);
};
template <class Subject, class... Facts> struct read_after_release {
  static_assert(never<Subject>, STRETTO_E03);
};
template <class Subject, class... Facts> struct weight_before_input {
  static_assert(never<Subject>, STRETTO_E04);
};
template <class Subject, class... Facts> struct missing_node {
  static_assert(never<Subject>, STRETTO_E05);
};
template <class Subject, class... Facts> struct doubled_node {
  static_assert(never<Subject>, STRETTO_E06);
};
template <class Subject, class... Facts> struct missing_cut {
  static_assert(never<Subject>, STRETTO_E07);
};
template <class Subject, class... Facts> struct no_backward_weight {
  static_assert(never<Subject>, STRETTO_E08);
};
template <class Subject, class... Facts> struct wait_on_later {
  static_assert(never<Subject>, STRETTO_E09);
};
template <class Subject, class... Facts> struct written_twice {
  static_assert(never<Subject>, STRETTO_E14);
};
template <class Subject, class... Facts> struct input_of_two_nodes {
  static_assert(never<Subject>, STRETTO_E15);
};
template <class Subject, class... Facts> struct never_produced {
  static_assert(never<Subject>, STRETTO_E16);
};
template <class Subject, class... Facts> struct too_large {
  static_assert(never<Subject>, STRETTO_E17);
};
template <class Subject, class... Facts> struct weights_out_of_order {
  static_assert(never<Subject>, STRETTO_E18);
};
template <class Subject, class... Facts> struct not_a_policy {
  static_assert(never<Subject>, STRETTO_E19);
};
template <class Subject, class... Facts> struct mixed_backward {
  static_assert(never<Subject>, STRETTO_E20);
};
template <class Subject, class... Facts> struct needs_autograd {
  static_assert(never<Subject>, STRETTO_E21);
};
template <class Subject, class... Facts> struct carried_wrongly {
  static_assert(never<Subject>, STRETTO_E24);
};
template <class Subject, class... Facts> struct objective_read {
  static_assert(never<Subject>, STRETTO_E25);
};

}  // namespace error

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

template <int Index, class Values> struct value_at;
template <int Index, class... V> struct value_at<Index, values<V...>> : nth<Index, V...> {};

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
  if constexpr (Cell < 8 || Cell == 46 || Cell == 47 || std::same_as<B, void>) {
    return std::type_identity<error::the_handover_between_layers>{};
  } else if constexpr (Cell < 24) {
    return std::type_identity<error::the_value<root_type<B, Cell - 8>>>{};
  } else if constexpr (Cell < 46) {
    return std::type_identity<error::the_gradient_of<typename leaf_type<B, Cell - 24>::type>>{};
  } else if constexpr (Cell < 56) {
    return std::type_identity<error::what_forward_keeps_for_backward_of<node_phase<B, Cell - 48>>>{};
  } else {
    return std::type_identity<error::what_backward_input_keeps_for_weight_of<node_phase<B, Cell - 56>>>{};
  }
}

}  // namespace detail
}  // namespace v0
}  // namespace stretto
