#pragma once

#include <stretto/error.hpp>
#include <stretto/layers.hpp>

#include <concepts>
#include <type_traits>

namespace stretto {
inline namespace v0 {
namespace detail {

template <class> struct listed_model { using type = void; };
template <class Model> struct listed_model<layer_list<Model>> { using type = Model; };

/// What a user may write behind schedule and backend and what makes no executor: no list of layers of `Model` that stays where
/// it is, or nothing but numbers behind it.
template <class Model, class Layers, class... Rest>
concept makes_no_executor =
    !std::convertible_to<Layers, layer_list<Model>&> || (std::integral<std::remove_cvref_t<Rest>> && ...);

/// Says so in one sentence. An rvalue is `Layers` without `&`.
template <class Schedule, class Layers> void refuse_arguments() {
  using model = typename Schedule::model;
  using given = typename listed_model<std::remove_cvref_t<Layers>>::type;
  if constexpr (std::convertible_to<Layers, layer_list<model>&>)
    static_assert(error::never<Layers>,
                  "stretto: an executor is given no sizes behind its layers; write "
                  "sizes{.microbatches = n}, with .ranks and .rank where there are several");
  else if constexpr (!std::is_void_v<given> && !sound_model<given>)
    return; // The list says so.
  else if constexpr (!std::is_void_v<given> && !std::same_as<given, model>)
    static_assert(sizeof(error::other_model<Schedule, model, given>));
  else
    static_assert(error::never<Layers>,
                  "stretto: an executor refers to its list of layers as long as it lives; give it a "
                  "variable of type layer_list<Model>, no temporary and not const");
}

} // namespace detail
} // namespace v0
} // namespace stretto
