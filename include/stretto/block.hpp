#pragma once

#include <stretto/block/builder.hpp>
#include <stretto/block/items.hpp>

#include <concepts>
#include <initializer_list>
#include <utility>

/// What the user composes: phases and cuts to a block (one layer), blocks to the block types of a model. Everything a
/// schedule needs to know about them is computed here once, as plain constexpr values.
namespace stretto {
inline namespace v0 {

namespace detail {

template <class Phase> struct phase_holder { Phase phase; };

} // namespace detail

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
  static_assert(sizeof(detail::items_verdict<check::what, check, items>));

public:
  /// False where the compiler has said what is wrong: nothing more is to be said of what stands on it.
  static constexpr bool sound = check::what == fault::none;
  // None where the check has found something, so that its sentence is all that the compiler says.
  using phases = std::conditional_t<sound, typename detail::without_marks<detail::phase_list<>, items>::type,
                                    detail::phase_list<>>;
  static constexpr block_facts describe() {
    detail::block_builder b;
    if constexpr (sound) b.add_all(items{});
    return b.f;
  }
};

template <class Block>
concept block_type = requires {
  typename Block::phases;
  { Block::describe() } -> std::same_as<block_facts>;
};

namespace detail {

template <class BlockOrModel>
concept refused = requires {
  requires !BlockOrModel::sound;
};

template <class Block> struct carried_by { using type = values<>; };
template <class Block>
requires requires { typename Block::carries; }
struct carried_by<Block> {
  using type = typename Block::carries;
};

/// The first thing that is wrong with the blocks of a model, and the number of that block.
template <class... BlockTypes> struct blocks_check {
  static constexpr bool good[] = {block_type<BlockTypes>..., sizeof...(BlockTypes) > 0};
  static constexpr bool lists[] = {is_values<typename carried_by<BlockTypes>::type>..., true};
  static constexpr int no_block = first_false(good, sizeof...(BlockTypes) + 1),
                       no_list = first_false(lists, sizeof...(BlockTypes));
  static constexpr int item = no_block >= 0  ? no_block
                              : no_list >= 0 ? no_list
                                             : find_repeated<BlockTypes...>();
  static constexpr fault what = item < 0        ? fault::none
                                : no_block >= 0 ? fault::not_a_block
                                : no_list >= 0  ? fault::not_a_value
                                                : fault::block_twice;
};
template <fault What, class Check, class... BlockTypes> struct blocks_verdict {};
template <class Check, class... BlockTypes> struct blocks_verdict<fault::not_a_block, Check, BlockTypes...> {
  static_assert(sizeof(error::not_a_block<typename nth<Check::item, BlockTypes..., error::nothing>::type>));
};
template <class Check, class... BlockTypes> struct blocks_verdict<fault::not_a_value, Check, BlockTypes...> {
  using block = typename nth<Check::item, BlockTypes...>::type;
  static_assert(sizeof(error::not_a_value<block, error::the_value<typename block::carries>>));
};
template <class Check, class... BlockTypes> struct blocks_verdict<fault::block_twice, Check, BlockTypes...> {
  static_assert(sizeof(error::block_twice<typename nth<Check::item, BlockTypes...>::type>));
};

/// A value is carried if some phase reads it from the layer before and none writes it anew.
template <class... Values> constexpr void carry_all(block_facts& f, values<Values...>) {
  type_id const carried[] = {id_of<Values>()..., 0};
  for (int k = 0; k < static_cast<int>(sizeof...(Values)); ++k) {
    int const i = f.find_input(carried[k]);
    if (i < 0 || f.find_root(carried[k]) >= 0)
      f.carried_wrongly = k;
    else
      f.input_is_carried[i] = true;
  }
}

} // namespace detail

/// The dataflow of block type `Block`: `dataflow_of<Block>::value`.
template <class Block> struct dataflow_of {
  static constexpr block_facts value = [] {
    block_facts f = Block::describe();
    f.name = detail::name_of_type<Block>();
    if constexpr (requires { typename Block::carries; }) detail::carry_all(f, typename Block::carries{});
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
  template <class Act> void for_each_phase(Act&& f) { (f(phase<Ph>()), ...); }
};

/// Whether braces around `Given` make the phase of a block that has one only.
template <class Phases, class... Given> inline constexpr bool makes_only_phase = false;
template <class Ph, class... Given>
inline constexpr bool makes_only_phase<phase_list<Ph>, Given...> = requires(Given&&... given) {
  Ph{static_cast<Given&&>(given)...};
};
/// Whether no constructor of a layer takes `Given`. A layer whose phases cannot be copied is no wrong phase, and braces that make
/// the only phase must not make a layer too: g++ 12 calls that ambiguous.
template <class Layer, class Phases, class... Given>
inline constexpr bool makes_no_layer =
    !(std::derived_from<std::remove_cvref_t<Given>, Layer> || ...) && !makes_only_phase<Phases, Given...> &&
    !std::constructible_from<layer_of<Phases>, Given...>;

/// Braces, and whatever stands beside them: no template parameter is deduced from braces.
struct braced {
  template <class... Given> braced(Given&&...) {}
};
/// Of which no list but the empty one is.
struct nobody {
  nobody(nobody const&) = delete;
};
template <class Phases> inline constexpr bool has_one_phase = false;
template <class Ph> inline constexpr bool has_one_phase<phase_list<Ph>> = true;

/// A layer that was given what its constructor does not take. Of a block that is wrong itself no phases are known.
template <class Layer, class Block, class... Given> struct refused_layer {
  static constexpr bool knows_phases = !std::same_as<typename Block::phases, phase_list<>>;
  static_assert(sizeof(std::conditional_t<knows_phases, error::wrong_phases<Block, Given...>, Block>));
  static Layer&& made();
};

} // namespace detail

/// The phases of one layer of type `Block`, with their parameters: `layer<Block>(phases...)`, `phase<Phase>()`,
/// `for_each_phase(f)`. The list of phases is in a base, for short names.
template <class Block> class layer : public detail::layer_of<typename Block::phases> {
public:
  using detail::layer_of<typename Block::phases>::layer_of;
  /// Says in words what is wrong, which is why a layer looks as if it could be made from nearly anything.
  template <class... Given>
  requires(detail::makes_no_layer<layer, typename Block::phases, Given...>) explicit layer(Given&&...)
      : layer(detail::refused_layer<layer, Block, std::remove_cvref_t<Given>...>::made()) {}
  /// The same where some are braces, of which the constructor takes others or another number. A template, so that it comes last.
  template <class Other = Block>
  requires(!detail::has_one_phase<typename Other::phases>) explicit layer(
      detail::braced, detail::braced, detail::braced = {}, detail::braced = {}, detail::braced = {},
      detail::braced = {}, detail::braced = {}, detail::braced = {})
      : layer(detail::refused_layer<layer, Other>::made()) {}
  /// The same where nothing is given for one phase that could be made of nothing.
  template <class Other = Block>
  requires(detail::makes_only_phase<typename Other::phases>) explicit layer()
      : layer(detail::refused_layer<layer, Other>::made()) {}
  /// Empty braces, which still make that phase: with the constructor above g++ 12 takes them for a layer as well.
  template <class Other = Block>
  requires(detail::makes_only_phase<typename Other::phases>) explicit layer(
      std::initializer_list<detail::nobody>)
      : detail::layer_of<typename Other::phases>({}) {}
};

/// The block types of a model, dense, MoE, embedding, head and so on, in any order; which layers there are and in which
/// order they run is run-time data. Derive a struct to keep names short.
template <class... BlockTypes> struct Blocks {
private:
  using check = detail::blocks_check<BlockTypes...>;
  static_assert(sizeof(detail::blocks_verdict<check::what, check, BlockTypes...>));

public:
  static constexpr int count = check::what == fault::none ? sizeof...(BlockTypes) : 0;
  /// As for a block.
  static constexpr bool sound = check::what == fault::none && !(detail::refused<BlockTypes> || ...);
  template <int Type> using block = typename detail::nth<Type, BlockTypes..., error::nothing>::type;
};

template <class Model>
concept model_type = requires {
  { Model::count } -> std::convertible_to<int>;
  typename Model::template block<0>;
};

namespace detail {

template <class Model>
concept sound_model = model_type<Model> && !refused<Model>;

template <class Model, int... Types> constexpr chain_facts make_chain(std::integer_sequence<int, Types...>) {
  chain_facts chain;
  (chain.add_inputs(dataflow_of<typename Model::template block<Types>>::value, Types), ...);
  (chain.add_limits(dataflow_of<typename Model::template block<Types>>::value), ...);
  (chain.add_outputs(dataflow_of<typename Model::template block<Types>>::value), ...);
  return chain;
}

} // namespace detail

/// The values that cross between the layers of `Model`: `chain_of<Model>::value`.
template <class Model> struct chain_of {
  static constexpr chain_facts value =
      detail::make_chain<Model>(std::make_integer_sequence<int, Model::count>{});
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
template <class Model, int Type> constexpr bool meets_in_pairs() {
  return meets_in_pairs(dataflow_of<typename Model::template block<Type>>::value, chain_of<Model>::value);
}

/// The dataflow of a block type whose number is known at run time.
template <class Model, int... Types>
block_facts const* facts_at(int type, std::integer_sequence<int, Types...>) {
  block_facts const* found = nullptr;
  ((type == Types ? void(found = &dataflow_of<typename Model::template block<Types>>::value) : void()), ...);
  return found;
}

} // namespace detail
} // namespace v0
} // namespace stretto
