#pragma once

#include <stretto/block.hpp>
#include <stretto/error.hpp>
#include <stretto/pipelines/one_f_one_b.hpp>
#include <stretto/pipelines/serial.hpp>
#include <stretto/program/body.hpp>
#include <stretto/schedules/serial.hpp>
#include <stretto/schedules/split_dw.hpp>
#include <stretto/schedules/two_stream_1f1b.hpp>

/// A schedule: the type that joins block types, a layer policy and a pipeline, and carries their programs.
namespace stretto {
inline namespace v0 {

namespace detail {

template <class Policy> constexpr int kind_of_policy() {
  if constexpr (std::same_as<Policy, SplitDW>)
    return 0;
  else if constexpr (layer_policy<Policy>)
    return 1;
  else if constexpr (pipeline<Policy>)
    return 2;
  else
    return 3;
}

template <int Kind, class Default, class... Policies> struct policy_of_kind { using type = Default; };
template <int Kind, class Default, class First, class... Rest>
struct policy_of_kind<Kind, Default, First, Rest...> : policy_of_kind<Kind, Default, Rest...> {};
template <int Kind, class Default, class First, class... Rest>
requires(kind_of_policy<First>() == Kind) struct policy_of_kind<Kind, Default, First, Rest...> {
  using type = First;
};

template <int Kind, class... Policies> constexpr int count_of_kind() {
  return ((kind_of_policy<Policies>() == Kind ? 1 : 0) + ... + 0);
}

/// A policy that never pairs has nothing to gain from a second microbatch in flight.
template <class Policy>
using default_pipeline = std::conditional_t<std::same_as<Policy, Serial>, SerialPipeline, OneFOneBOverlapped>;

} // namespace detail

/// `BlockOrModel` is one block type or `Blocks<...>`; `Policies` are one layer policy, optionally `SplitDW`, optionally a
/// pipeline (default: `SerialPipeline` for `Serial`, else 1F1B with the extra warm-up microbatch).
/// Derive a struct from it (`struct Step : Schedule<...> {};`) to keep symbol names short.
template <class BlockOrModel, class... Policies> struct Schedule {
  static_assert(sizeof(BlockOrModel)); // here, where the way to what the user wrote is short
  using model = std::conditional_t<model_type<BlockOrModel>, BlockOrModel, Blocks<BlockOrModel>>;
  static_assert(sizeof(model));
  // Where none is given, another one stands in, so that the broken rule is all that the compiler says.
  using policy = typename detail::policy_of_kind<1, Serial, Policies...>::type;
  using rank_plan = typename detail::policy_of_kind<2, detail::default_pipeline<policy>, Policies...>::type;
  static constexpr bool splits = detail::count_of_kind<0, Policies...>() > 0;
  /// Whether the policies are one layer policy, at most one pipeline, and nothing else but `SplitDW`: the proof asks.
  static constexpr bool fits = detail::count_of_kind<1, Policies...>() == 1 &&
                               detail::count_of_kind<2, Policies...>() <= 1 &&
                               detail::count_of_kind<3, Policies...>() == 0;
  using policies = error::the_policies<Policies...>;

  /// The table of one body. A derived schedule may replace it, which is how tests break a program on purpose.
  template <form Form, int Forward, int Backward> static constexpr detail::draft make_body() {
    constexpr chain_facts const& chain = chain_of<model>::value;
    return detail::body_maker(facts<Forward>(), facts<Backward>(), chain, {Forward, Backward}, Form, splits)
        .make(detail::order_of<policy>(Form));
  }

private:
  template <int Type> static constexpr block_facts const* facts() {
    if constexpr (Type < 0)
      return nullptr;
    else
      return &dataflow_of<typename model::template block<Type>>::value;
  }
};

template <class Type>
concept schedule_type = requires {
  typename Type::model;
  typename Type::rank_plan;
};

/// The table of one body of `Schedule`, with what the proof found.
template <class Schedule, form Form, int Forward, int Backward> struct draft_of {
  static constexpr detail::draft value =
      detail::checked(Schedule::template make_body<Form, Forward, Backward>());
};

/// The program of one body: exactly its rows.
template <class Schedule, form Form, int Forward, int Backward> struct body_of {
  static constexpr int size = draft_of<Schedule, Form, Forward, Backward>::value.count;
  static constexpr program<size> value = [] {
    program<size> p;
    for (int i = 0; i < size; ++i) p.ops[i] = draft_of<Schedule, Form, Forward, Backward>::value.ops[i];
    return p;
  }();
};

} // namespace v0
} // namespace stretto
