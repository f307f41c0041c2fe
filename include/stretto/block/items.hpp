#pragma once

#include <stretto/detail/type_name.hpp>
#include <stretto/error.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

/// What may be written into a block or a model, asked where it is written: what would otherwise be a compiler's complaint
/// about code that the user did not write is one sentence here.
namespace stretto {
inline namespace v0 {
namespace detail {

template <class... Ph> struct phase_list {};

/// The items of a block, one after another, with marks where a `Recompute` begins and ends.
template <class... Items> struct item_list {};
struct recompute_begins {};
struct recompute_ends {};
template <class Item> inline constexpr bool is_mark = false;
template <> inline constexpr bool is_mark<Detach> = true;
template <> inline constexpr bool is_mark<recompute_begins> = true;
template <> inline constexpr bool is_mark<recompute_ends> = true;

template <class Out, class... Items> struct flat { using type = Out; };
template <class... Out, class... Inner, class... Rest>
struct flat<item_list<Out...>, Recompute<Inner...>, Rest...>
    : flat<item_list<Out..., recompute_begins, Inner..., recompute_ends>, Rest...> {};
template <class... Out, class First, class... Rest>
struct flat<item_list<Out...>, First, Rest...> : flat<item_list<Out..., First>, Rest...> {};
template <class... Items> using flat_items = typename flat<item_list<>, Items...>::type;

template <int Index, class First, class... Rest> struct nth : nth<Index - 1, Rest...> {};
template <class First, class... Rest> struct nth<0, First, Rest...> { using type = First; };

template <int Index, class Values> struct value_at;
template <int Index, class... Values> struct value_at<Index, values<Values...>> : nth<Index, Values...> {};

/// Phases of a list of phases and marks.
template <class Out, class List> struct without_marks { using type = Out; };
template <class... Ph, class First, class... Rest>
struct without_marks<phase_list<Ph...>, item_list<First, Rest...>>
    : without_marks<std::conditional_t<is_mark<First>, phase_list<Ph...>, phase_list<Ph..., First>>,
                    item_list<Rest...>> {};

template <int Index, class Phases> struct phase_at;
template <int Index, class... Ph> struct phase_at<Index, phase_list<Ph...>> : nth<Index, Ph...> {};

template <class Ph> struct has_named_members {
  // A name declared in two bases is ambiguous, so `&both::name` is ill-formed exactly if Ph declares the name too;
  // unlike a call, this also sees member templates such as `void backward(auto&)`.
  struct fallback {
    int forward, backward, backward_input, backward_weight;
  };
  struct both : Ph, fallback {};
  static constexpr bool forward = !requires { &both::forward; };
  static constexpr bool backward = !requires { &both::backward; };
  static constexpr bool backward_input = !requires { &both::backward_input; };
  static constexpr bool backward_weight = !requires { &both::backward_weight; };
};

/// A phase is held, called and derived from, so it is a plain struct.
template <class Item>
concept phase_like = std::is_class_v<Item> && std::same_as<Item, std::remove_cv_t<Item>> && requires {
  { Item::kind } -> std::convertible_to<phase_kind>;
  { Item::has_weights } -> std::convertible_to<bool>;
  typename Item::reads;
  typename Item::writes;
} && !std::is_final_v<Item> && !std::is_abstract_v<Item>;

/// What a phase says of itself in numbers is known when its block is. Asked with a cast in the argument of an alias: in that of a class
/// g++ 12 stops at a member that is not static.
template <class Item> inline constexpr bool has_constant_weights = requires {
  typename std::bool_constant<static_cast<bool>(Item::has_weights)>;
};
template <class Limited> inline constexpr bool has_constant_limit = requires {
  typename std::bool_constant<static_cast<int>(Limited::in_flight) == 0>;
};
template <class Item> constexpr bool has_constants() {
  if constexpr (!has_constant_weights<Item>)
    return false;
  else if constexpr (requires { typename Item::communicator; })
    return has_constant_limit<typename Item::communicator>;
  else if constexpr (requires { Item::in_flight; })
    return has_constant_limit<Item>;
  else
    return true;
}

/// What a phase keeps is made empty with its slot, and emptied by assignment.
template <class Saved>
concept can_be_emptied = requires(Saved& saved) {
  sizeof(Saved);
  saved = Saved{};
};
template <class Item> constexpr bool saves_well() {
  if constexpr (requires { typename Item::saved; })
    return can_be_emptied<typename Item::saved>;
  else
    return true;
}

template <class Value>
concept value_like = requires {
  sizeof(Value);
}
&&(std::derived_from<Value, value> || std::derived_from<Value, metadata>);
/// Metadata says what it holds.
template <class Value>
concept holds_something = !value_like<Value> || !std::derived_from<Value, metadata> || (requires {
  typename Value::type;
} && std::default_initializable<typename Value::type> && std::movable<typename Value::type>);

template <class List> inline constexpr bool is_values = false;
template <class... Values> inline constexpr bool is_values<values<Values...>> = true;

/// The lists of a phase: what it reads, writes, saves, and hands on under another name.
template <class Ph, int Which> struct list_of { using type = values<>; };
template <class Ph> struct list_of<Ph, 0> { using type = typename Ph::reads; };
template <class Ph> struct list_of<Ph, 1> { using type = typename Ph::writes; };
template <class Ph>
requires requires { typename Ph::saves; }
struct list_of<Ph, 2> {
  using type = typename Ph::saves;
};
template <class Ph>
requires requires { typename Ph::aliases; }
struct list_of<Ph, 3> {
  using type = typename Ph::aliases;
};

/// What is wrong with an item of a block; for faults of a value the list where it stands and its place there.
struct item_finding {
  fault what = fault::none;
  int list = -1;
  int at = -1;
};

constexpr int first_false(bool const* right, int count) {
  for (int i = 0; i < count; ++i)
    if (!right[i]) return i;
  return -1;
}
template <class... Values> constexpr item_finding check_list(values<Values...>, int list) {
  bool const named[] = {value_like<Values>..., true}, full[] = {holds_something<Values>..., true};
  if (int const at = first_false(named, sizeof...(Values)); at >= 0) return {fault::not_a_value, list, at};
  if (int const at = first_false(full, sizeof...(Values)); at >= 0)
    return {fault::metadata_without_type, list, at};
  return {};
}
template <class One, class... All> inline constexpr bool is_one_of = (std::same_as<One, All> || ...);
template <class... Saved, class... Read, class... Written>
constexpr int find_unlisted(values<Saved...>, values<Read...>, values<Written...>) {
  bool const listed[] = {is_one_of<Saved, Read..., Written...>..., true};
  return first_false(listed, sizeof...(Saved));
}
/// Aliases come in pairs of tensors: what is read, and what it is written as. The place of the first that is none, or -1.
template <class... Aliased, class... Read, class... Written>
constexpr int find_misaliased(values<Aliased...>, values<Read...>, values<Written...>) {
  int const count = sizeof...(Aliased);
  bool const read[] = {is_one_of<Aliased, Read...>..., true},
             written[] = {is_one_of<Aliased, Written...>..., true};
  bool const plain[] = {(std::derived_from<Aliased, value> && !std::derived_from<Aliased, objective>)...,
                        true};
  for (int i = 0; i < count; ++i)
    if (!plain[i] || !(i % 2 == 0 ? read : written)[i]) return i;
  return count % 2 == 0 ? -1 : count - 1;
}

template <class Reads, class Writes, class Saves, class Aliases> constexpr item_finding check_phase() {
  bool const lists[] = {is_values<Reads>, is_values<Writes>, is_values<Saves>, is_values<Aliases>};
  if (int const list = first_false(lists, 4); list >= 0) return {fault::not_a_value, list};
  if constexpr (is_values<Reads> && is_values<Writes> && is_values<Saves> && is_values<Aliases>) {
    item_finding const found[] = {check_list(Reads{}, 0), check_list(Writes{}, 1), check_list(Saves{}, 2),
                                  check_list(Aliases{}, 3)};
    for (item_finding const& one : found)
      if (one.what != fault::none) return one;
    if (int const at = find_unlisted(Saves{}, Reads{}, Writes{}); at >= 0)
      return {fault::saves_unlisted, 2, at};
    if (int const at = find_misaliased(Aliases{}, Reads{}, Writes{}); at >= 0)
      return {fault::aliased_wrongly, 3, at};
  }
  return {};
}
template <class Item> constexpr item_finding check_item() {
  if constexpr (is_mark<Item>)
    return {};
  else if constexpr (!phase_like<Item>)
    return {fault::not_a_phase};
  else if constexpr (!has_constants<Item>())
    return {fault::no_constant};
  else if constexpr (!saves_well<Item>())
    return {fault::unfit_saved};
  else
    return check_phase<typename Item::reads, typename Item::writes, typename list_of<Item, 2>::type,
                       typename list_of<Item, 3>::type>();
}

/// The place of the first type that stands in the list before and is no mark; -1 if none does.
template <class... Types> constexpr int find_repeated() {
  type_id const ids[] = {id_of<Types>()..., 0};
  bool const marks[] = {is_mark<Types>..., true};
  for (int i = 1; i < static_cast<int>(sizeof...(Types)); ++i)
    for (int before = 0; before < i; ++before)
      if (ids[before] == ids[i] && !marks[i]) return i;
  return -1;
}

constexpr int first_faulty(item_finding const* all, int count) {
  for (int i = 0; i < count; ++i)
    if (all[i].what != fault::none) return i;
  return -1;
}

/// The first thing that is wrong with the items of a block, and the number of that item.
template <class List> struct items_check;
template <class... Items> struct items_check<item_list<Items...>> {
  static constexpr item_finding all[] = {check_item<Items>()..., {}};
  static constexpr int faulty = first_faulty(all, sizeof...(Items));
  static constexpr int item = faulty >= 0 ? faulty : find_repeated<Items...>();
  static constexpr fault what = faulty >= 0 ? all[item].what : item >= 0 ? fault::phase_twice : fault::none;
};

// From here on only what a failed check needs.

template <class Item, int List, int At>
struct culprit_of : value_at<At, typename list_of<Item, List>::type> {};
template <class Item, int List> struct culprit_of<Item, List, -1> : list_of<Item, List> {};
template <int Index, class List> struct item_at;
template <int Index, class... Items> struct item_at<Index, item_list<Items...>> : nth<Index, Items...> {};
template <class Check, class List> using faulty_item = typename item_at<Check::item, List>::type;
template <class Check, class List>
using faulty_value =
    error::the_value<typename culprit_of<faulty_item<Check, List>, Check::all[Check::item].list,
                                         Check::all[Check::item].at>::type>;

/// Stops the compiler at a block whose items are unsound.
template <fault What, class Check, class List> struct items_verdict {};
template <class Check, class List> struct items_verdict<fault::not_a_phase, Check, List> {
  static_assert(sizeof(error::not_a_phase<faulty_item<Check, List>>));
};
template <class Check, class List> struct items_verdict<fault::no_constant, Check, List> {
  static_assert(sizeof(error::no_constant<faulty_item<Check, List>>));
};
template <class Check, class List> struct items_verdict<fault::unfit_saved, Check, List> {
  using item = faulty_item<Check, List>;
  static_assert(sizeof(error::unfit_saved<item, typename item::saved>));
};
template <class Check, class List> struct items_verdict<fault::not_a_value, Check, List> {
  static_assert(sizeof(error::not_a_value<faulty_item<Check, List>, faulty_value<Check, List>>));
};
template <class Check, class List> struct items_verdict<fault::metadata_without_type, Check, List> {
  static_assert(sizeof(error::metadata_without_type<faulty_item<Check, List>, faulty_value<Check, List>>));
};
template <class Check, class List> struct items_verdict<fault::saves_unlisted, Check, List> {
  static_assert(sizeof(error::saves_unlisted<faulty_item<Check, List>, faulty_value<Check, List>>));
};
template <class Check, class List> struct items_verdict<fault::aliased_wrongly, Check, List> {
  static_assert(sizeof(error::aliased_wrongly<faulty_item<Check, List>, faulty_value<Check, List>>));
};
template <class Check, class List> struct items_verdict<fault::phase_twice, Check, List> {
  static_assert(sizeof(error::phase_twice<faulty_item<Check, List>>));
};

} // namespace detail
} // namespace v0
} // namespace stretto
