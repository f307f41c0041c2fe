#pragma once

#include <stretto/executor/slot.hpp>

#include <cstdlib>
#include <utility>

/// Where the compiler first meets the code of the user's phases: right below the executor, since inside of the generated
/// code what it has to say would take dozens of lines.
namespace stretto {
inline namespace v0 {
namespace detail {

/// The members of a phase that run a pass, by the numbers of `pass`.
enum class member { forward, backward, backward_input, backward_weight };

template <class Ph> constexpr bool has(member what) {
  using members = has_named_members<Ph>;
  return what == member::forward          ? members::forward
         : what == member::backward       ? members::backward
         : what == member::backward_input ? members::backward_input
                                          : members::backward_weight;
}

/// The phases of a model that have one of the members, over all block types.
template <int Most> struct phase_numbers {
  int block[extent(Most)] = {};
  int phase[extent(Most)] = {};
  int count = 0;

  template <class... Ph> constexpr void add(member what, int of_block, phase_list<Ph...>) {
    bool const with[] = {has<Ph>(what)..., false};
    for (int p = 0; p < static_cast<int>(sizeof...(Ph)); ++p)
      if (with[p]) block[count] = of_block, phase[count++] = p;
  }
};
template <class... Ph> constexpr int size_of(phase_list<Ph...>) { return sizeof...(Ph); }

template <class Model, member What, int... Types>
constexpr auto find_phases(std::integer_sequence<int, Types...>) {
  phase_numbers<(0 + ... + size_of(typename Model::template block<Types>::phases{}))> found;
  (found.add(What, Types, typename Model::template block<Types>::phases{}), ...);
  return found;
}
template <class Model, member What> struct phases_with {
  static constexpr auto value = find_phases<Model, What>(std::make_integer_sequence<int, Model::count>{});
};
template <class Model, member What>
using numbers_with = std::make_integer_sequence<int, phases_with<Model, What>::value.count>;

template <class Model, member What, int Index> struct phase_with {
  static constexpr int block = phases_with<Model, What>::value.block[Index];
  static constexpr int number = phases_with<Model, What>::value.phase[Index];
  using type = typename phase_at<number, typename Model::template block<block>::phases>::type;
  using facts = dataflow_of<typename Model::template block<block>>;
  static constexpr pass in = What == member::forward           ? pass::forward
                             : What == member::backward_weight ? pass::backward_weight
                                                               : pass::backward;
  static constexpr bool recomputed =
      in != pass::forward && facts::value.recomputes[facts::value.node_of[number]];
  template <class Tensors> using view = io<Model, block, number, Tensors, in, recomputed>;
};
template <class Model, member What, int Index>
using used_phase = typename phase_with<Model, What, Index>::type;
template <class Model, member What, int Index, class Tensors>
using used_io = typename phase_with<Model, What, Index>::template view<Tensors>;

/// Nothing of this runs: it is asked for its type alone. Defined all the same, since clang refuses an undefined one for types of an unnamed namespace.
template <class Type> Type& some() { std::abort(); }

/// What came of using the passes of all phases: the number of the first of a kind that cannot be called, or -1.
template <class Model, member What, int Wrong> struct uses { static constexpr bool fine = Wrong < 0; };

/// Every pass of every phase of `Model`, by its numbers of `numbers_with`.
template <class Model, class Tensors, class Forward = numbers_with<Model, member::forward>,
          class Backward = numbers_with<Model, member::backward>,
          class Input = numbers_with<Model, member::backward_input>,
          class Weight = numbers_with<Model, member::backward_weight>>
struct passes;
// All in one function, since the compiler says lines for every level; clang-format 14 breaks such lists.
// clang-format off
template <class Model, class Tensors, int... Forward, int... Backward, int... Input, int... Weight>
struct passes<Model, Tensors, std::integer_sequence<int, Forward...>, std::integer_sequence<int, Backward...>,
              std::integer_sequence<int, Input...>, std::integer_sequence<int, Weight...>> {
  /// Asks whether all can be called; with `Compile`, and if they can, compiles them.
  template <bool Compile> static auto use() {
    constexpr bool forward[] = {requires { some<used_phase<Model, member::forward, Forward>>().forward(some<used_io<Model, member::forward, Forward, Tensors>>()); }..., true};
    constexpr bool backward[] = {requires { some<used_phase<Model, member::backward, Backward>>().backward(some<used_io<Model, member::backward, Backward, Tensors>>()); }..., true};
    constexpr bool input[] = {requires { some<used_phase<Model, member::backward_input, Input>>().backward_input(some<used_io<Model, member::backward_input, Input, Tensors>>()); }..., true};
    constexpr bool weight[] = {requires { some<used_phase<Model, member::backward_weight, Weight>>().backward_weight(some<used_io<Model, member::backward_weight, Weight, Tensors>>()); }..., true};
    constexpr int wrong[] = {first_false(forward, sizeof...(Forward)), first_false(backward, sizeof...(Backward)), first_false(input, sizeof...(Input)), first_false(weight, sizeof...(Weight))};
    constexpr int first = wrong[0] >= 0 ? 0 : wrong[1] >= 0 ? 1 : wrong[2] >= 0 ? 2 : 3;
    if constexpr (Compile && wrong[first] < 0) {
      (some<used_phase<Model, member::forward, Forward>>().forward(some<used_io<Model, member::forward, Forward, Tensors>>()), ...);
      (some<used_phase<Model, member::backward, Backward>>().backward(some<used_io<Model, member::backward, Backward, Tensors>>()), ...);
      (some<used_phase<Model, member::backward_input, Input>>().backward_input(some<used_io<Model, member::backward_input, Input, Tensors>>()), ...);
      (some<used_phase<Model, member::backward_weight, Weight>>().backward_weight(some<used_io<Model, member::backward_weight, Weight, Tensors>>()), ...);
    }
    return uses<Model, static_cast<member>(first), wrong[first]>{};
  }
};
// clang-format on

/// Stops the compiler at the phase that cannot be called.
template <class Uses> struct uses_verdict {};
template <class Model, member What, int Wrong>
requires(Wrong >= 0) struct uses_verdict<uses<Model, What, Wrong>> {
  static_assert(
      sizeof(error::uncallable<error::pass_of<static_cast<pass>(What), used_phase<Model, What, Wrong>>>));
};

} // namespace detail
} // namespace v0
} // namespace stretto
