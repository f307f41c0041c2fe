#pragma once

#include <stretto/phase.hpp>
#include <stretto/rules.hpp>

/// Compile-time errors: one struct a rule, named after it. Its arguments are the facts, as types the user knows; its body
/// is the sentence. This form shows both on g++, clang and nvcc.
namespace stretto {
inline namespace v0 {
namespace error {

template <class> inline constexpr bool never = false;

// Nouns, never defined: what an error is about.
template <pass What, class Phase, lane On, class Block> struct op_at;
template <class Value> struct the_value;
template <class Value> struct the_gradient_of;
template <class Phase> struct what_forward_keeps_for_backward_of;
template <class Phase> struct what_backward_input_keeps_for_weight_of;
template <pass What, class Phase> struct pass_of;
template <class... Policies> struct the_policies;
template <int Count> struct which_allows;
struct outside_of_this_layer;
struct nothing;
struct the_handover_between_layers;

// A line a rule.
// clang-format off
template <class Subject, class... Facts> struct unwritten_read { static_assert(never<Subject>, STRETTO_E01); };
template <class Subject, class... Facts> struct race { static_assert(never<Subject>, STRETTO_E02); };
template <class Subject, class... Facts> struct read_after_release { static_assert(never<Subject>, STRETTO_E03); };
template <class Subject, class... Facts> struct weight_before_input { static_assert(never<Subject>, STRETTO_E04); };
template <class Subject, class... Facts> struct missing_node { static_assert(never<Subject>, STRETTO_E05); };
template <class Subject, class... Facts> struct doubled_node { static_assert(never<Subject>, STRETTO_E06); };
template <class Subject, class... Facts> struct missing_cut { static_assert(never<Subject>, STRETTO_E07); };
template <class Subject, class... Facts> struct no_backward_weight { static_assert(never<Subject>, STRETTO_E08); };
template <class Subject, class... Facts> struct wait_on_later { static_assert(never<Subject>, STRETTO_E09); };
template <class Subject, class... Facts> struct undeclared_read { static_assert(never<Subject>, STRETTO_E10); };
template <class Subject, class... Facts> struct undeclared_write { static_assert(never<Subject>, STRETTO_E11); };
template <class Subject, class... Facts> struct ambiguous_name { static_assert(never<Subject>, STRETTO_E12); };
template <class Subject, class... Facts> struct gone_before_weight_pass { static_assert(never<Subject>, STRETTO_E13); };
template <class Subject, class... Facts> struct written_twice { static_assert(never<Subject>, STRETTO_E14); };
template <class Subject, class... Facts> struct input_of_two_nodes { static_assert(never<Subject>, STRETTO_E15); };
template <class Subject, class... Facts> struct never_produced { static_assert(never<Subject>, STRETTO_E16); };
template <class Subject, class... Facts> struct too_large { static_assert(never<Subject>, STRETTO_E17); };
template <class Subject, class... Facts> struct not_a_policy { static_assert(never<Subject>, STRETTO_E19); };
template <class Subject, class... Facts> struct mixed_backward { static_assert(never<Subject>, STRETTO_E20); };
template <class Subject, class... Facts> struct needs_autograd { static_assert(never<Subject>, STRETTO_E21); };
template <class Subject, class... Facts> struct carried_wrongly { static_assert(never<Subject>, STRETTO_E24); };
template <class Subject, class... Facts> struct objective_read { static_assert(never<Subject>, STRETTO_E25); };
template <class Subject, class... Facts> struct no_forward { static_assert(never<Subject>, STRETTO_E26); };
template <class Subject, class... Facts> struct not_a_phase { static_assert(never<Subject>, STRETTO_E27); };
template <class Subject, class... Facts> struct not_a_value { static_assert(never<Subject>, STRETTO_E28); };
template <class Subject, class... Facts> struct metadata_without_type { static_assert(never<Subject>, STRETTO_E29); };
template <class Subject, class... Facts> struct saves_unlisted { static_assert(never<Subject>, STRETTO_E30); };
template <class Subject, class... Facts> struct phase_twice { static_assert(never<Subject>, STRETTO_E31); };
template <class Subject, class... Facts> struct saved_without_type { static_assert(never<Subject>, STRETTO_E32); };
template <class Subject, class... Facts> struct not_a_block { static_assert(never<Subject>, STRETTO_E33); };
template <class Subject, class... Facts> struct block_twice { static_assert(never<Subject>, STRETTO_E34); };
template <class Subject, class... Facts> struct metadata_crosses { static_assert(never<Subject>, STRETTO_E35); };
template <class Subject, class... Facts> struct backward_leaves_lane { static_assert(never<Subject>, STRETTO_E36); };
template <class Subject, class... Facts> struct too_many_in_flight { static_assert(never<Subject>, STRETTO_E37); };
template <class Subject, class... Facts> struct other_model { static_assert(never<Subject>, STRETTO_E62); };
template <class Subject, class... Facts> struct recompute_spans_cut { static_assert(never<Subject>, STRETTO_E64); };
template <class Subject, class... Facts> struct no_objective { static_assert(never<Subject>, STRETTO_E65); };
template <class Subject, class... Facts> struct wrong_phases { static_assert(never<Subject>, STRETTO_E68); };
template <class Subject, class... Facts> struct unsaved_read { static_assert(never<Subject>, STRETTO_E69); };
template <class Subject, class... Facts> struct uncallable { static_assert(never<Subject>, STRETTO_E70); };
template <class Subject, class... Facts> struct no_constant { static_assert(never<Subject>, STRETTO_E71); };
template <class Subject, class... Facts> struct unfit_saved { static_assert(never<Subject>, STRETTO_E72); };
template <class Subject, class... Facts> struct no_gradient { static_assert(never<Subject>, STRETTO_E73); };
template <class Subject, class... Facts> struct aliased_wrongly { static_assert(never<Subject>, STRETTO_E39); };
template <class Subject, class... Facts> struct size_out_of_range { static_assert(never<Subject>, STRETTO_E40); };
template <class Subject, class... Facts> struct no_such_place { static_assert(never<Subject>, STRETTO_E45); };
template <class Subject, class... Facts> struct missing { static_assert(never<Subject>, STRETTO_E46); };
template <class Subject, class... Facts> struct doubled { static_assert(never<Subject>, STRETTO_E47); };
template <class Subject, class... Facts> struct undeclared_form { static_assert(never<Subject>, STRETTO_E48); };
template <class Subject, class... Facts> struct dependent_pair { static_assert(never<Subject>, STRETTO_E49); };
template <class Subject, class... Facts> struct too_early { static_assert(never<Subject>, STRETTO_E50); };
template <class Subject, class... Facts> struct weight_order { static_assert(never<Subject>, STRETTO_E51); };
template <class Subject, class... Facts> struct deadlock { static_assert(never<Subject>, STRETTO_E52); };
template <class Subject, class... Facts> struct too_many_live { static_assert(never<Subject>, STRETTO_E53); };
// clang-format on

} // namespace error
} // namespace v0
} // namespace stretto
