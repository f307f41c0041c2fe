#pragma once

#include <stretto/block_builder.hpp>
#include <stretto/items.hpp>

#include <concepts>
#include <utility>

/// What the user composes: phases and cuts to a block (one layer), blocks to the block types of a model. Everything a
/// schedule needs to know about them is computed here once, as plain constexpr values.
namespace stretto {
inline namespace v0 {

namespace detail {

template <class Phase> struct phase_holder {
  Phase phase;
};

}  // namespace detail

/// One layer: phases in forward order, with `Detach` where the autograd graph is cut, and `Recompute` around the phases of a
/// node that are to run forward again in backward. Values connect the phases by
/// name. A value read before any phase of the block writes it comes from the layer before; a value written and not
/// read afterwards goes to the layer behind. Derive a struct (`struct MoeLayer : Block<...> {};`) to keep names short.
///
/// `using carries = values<...>` in that struct lists values of the layer before that the block reads and passes on as they
/// are, on the same storage: the output of the trunk, which a head and a multi-token prediction read one after the other.
/// The gradient that the block gives back is its own part plus that of the layers behind.
template <class... Items> struct Block {
 private:
  using items = detail::flat_items<Items...>;
  using check = detail::items_check<items>;
  static constexpr bool sound = check::what == fault::none;
  static_assert(sizeof(detail::items_verdict<check::what, check, items>));

 public:
  // None where the check has found something, so that its sentence is all that the compiler says.
  using phases =
      std::conditional_t<sound, typename detail::without_marks<detail::phase_list<>, items>::type, detail::phase_list<>>;
  static constexpr block_facts describe() {
    detail::block_builder b;
    if constexpr (sound) b.add_all(items{});
    return b.f;
  }
};

template <class B> concept block_type = requires {
  typename B::phases;
  { B::describe() } -> std::same_as<block_facts>;
};

namespace detail {

template <class B> struct carried_by {
  using type = values<>;
};
template <class B>
  requires requires { typename B::carries; }
struct carried_by<B> {
  using type = typename B::carries;
};

/// The first thing that is wrong with the blocks of a model, and the number of that block.
template <class... B> struct blocks_check {
  static constexpr bool good[] = {block_type<B>..., sizeof...(B) > 0};
  static constexpr bool lists[] = {is_values<typename carried_by<B>::type>..., true};
  static constexpr int no_block = first_false(good, sizeof...(B) + 1), no_list = first_false(lists, sizeof...(B));
  static constexpr int item = no_block >= 0 ? no_block : no_list >= 0 ? no_list : find_repeated<B...>();
  static constexpr fault what = item < 0        ? fault::none
                                : no_block >= 0 ? fault::not_a_block
                                : no_list >= 0  ? fault::not_a_value
                                                : fault::block_twice;
};
template <fault What, class Check, class... B> struct blocks_verdict {};
template <class Check, class... B> struct blocks_verdict<fault::not_a_block, Check, B...> {
  static_assert(sizeof(error::not_a_block<typename nth<Check::item, B..., error::nothing>::type>));
};
template <class Check, class... B> struct blocks_verdict<fault::not_a_value, Check, B...> {
  using block = typename nth<Check::item, B...>::type;
  static_assert(sizeof(error::not_a_value<block, error::the_value<typename block::carries>>));
};
template <class Check, class... B> struct blocks_verdict<fault::block_twice, Check, B...> {
  static_assert(sizeof(error::block_twice<typename nth<Check::item, B...>::type>));
};

}  // namespace detail

namespace detail {

/// A value is carried if some phase reads it from the layer before and none writes it anew.
template <class... V> constexpr void carry_all(block_facts& f, values<V...>) {
  type_id const carried[] = {id_of<V>()..., 0};
  for (int k = 0; k < static_cast<int>(sizeof...(V)); ++k) {
    int const i = f.find_input(carried[k]);
    if (i < 0 || f.find_root(carried[k]) >= 0)
      f.carried_wrongly = k;
    else
      f.input_is_carried[i] = true;
  }
}

}  // namespace detail

template <class B> struct dataflow_of {
  static constexpr block_facts value = [] {
    block_facts f = B::describe();
    f.name = detail::name_of_type<B>();
    if constexpr (requires { typename B::carries; }) detail::carry_all(f, typename B::carries{});
    return f;
  }();
};

namespace detail {

template <class Phases> class layer_of;
template <class... Ph> class layer_of<phase_list<Ph...>> : phase_holder<Ph>... {
 public:
  explicit layer_of(Ph... phases) : phase_holder<Ph>{std::move(phases)}... {}
  template <class Phase> Phase& phase() { return phase_holder<Phase>::phase; }
  template <int Index> auto& at() { return phase<typename nth<Index, Ph...>::type>(); }
  /// Calls `f` with every phase, in forward order.
  template <class F> void for_each_phase(F&& f) { (f(phase<Ph>()), ...); }
};

}  // namespace detail

/// The phases of one layer of block type `B`, with their parameters: `layer<B>(phases...)`, `phase<Phase>()`,
/// `for_each_phase(f)`. The list of phases is in a base, for short names.
template <class B> class layer : public detail::layer_of<typename B::phases> {
 public:
  using detail::layer_of<typename B::phases>::layer_of;
};

/// The block types of a model, dense, MoE, embedding, head and so on, in any order; which layers there are and in which
/// order they run is run-time data. Derive a struct to keep names short.
template <class... B> struct Blocks {
 private:
  using check = detail::blocks_check<B...>;
  static_assert(sizeof(detail::blocks_verdict<check::what, check, B...>));

 public:
  static constexpr int count = check::what == fault::none ? sizeof...(B) : 0;
  template <int K> using block = typename detail::nth<K, B..., error::nothing>::type;
};

template <class Model>
concept model_type = requires {
  { Model::count } -> std::convertible_to<int>;
  typename Model::template block<0>;
};

template <class Model, int... K> constexpr chain_facts make_chain(std::integer_sequence<int, K...>) {
  chain_facts chain;
  (chain.add_inputs(dataflow_of<typename Model::template block<K>>::value, K), ...);
  (chain.add_limits(dataflow_of<typename Model::template block<K>>::value), ...);
  (chain.add_outputs(dataflow_of<typename Model::template block<K>>::value), ...);
  return chain;
}
template <class Model> struct chain_of {
  static constexpr chain_facts value = make_chain<Model>(std::make_integer_sequence<int, Model::count>{});
};

namespace detail {

/// Whether layers of a block type meet others in pairs: they communicate, or they hand on what they get. An embedding or a
/// head does neither; it has nothing to hide and would only shift the others.
constexpr bool meets_in_pairs(block_facts const& f, chain_facts const& chain) {
  bool communicates = false, gives = false;
  for (int p = 0; p < f.phases; ++p) communicates |= f.kind[p] == dispatch || f.kind[p] == combine;
  for (int v = 0; v < f.roots; ++v) gives |= f.root_is_output[v] && chain.find(f.root[v]) >= 0;
  return communicates || chain.count == 0 || (gives && f.inputs > 0);
}
template <class Model, int K> constexpr bool meets_in_pairs() {
  return meets_in_pairs(dataflow_of<typename Model::template block<K>>::value, chain_of<Model>::value);
}

/// The dataflow of a block type whose number is known at run time.
template <class Model, int... K> block_facts const* facts_at(int type, std::integer_sequence<int, K...>) {
  block_facts const* found = nullptr;
  ((type == K ? void(found = &dataflow_of<typename Model::template block<K>>::value) : void()), ...);
  return found;
}

}  // namespace detail
}  // namespace v0
}  // namespace stretto
