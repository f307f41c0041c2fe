#pragma once

// First, for a short list of includers in the compiler's message.
#include <stretto/error.hpp>

#include <stretto/block/types.hpp>
#include <stretto/detail/extent.hpp>

#include <type_traits>

/// What one layer keeps for one microbatch between forward and backward, and how a phase sees it.
namespace stretto {
inline namespace v0 {

/// What a layer gets from its neighbours: where the value of each chain value lies (forward, from the layer before)
/// and the gradient that this layer returns for it (backward, to the layer before).
template <class Tensor> struct boundary {
  Tensor const* value[max_carried] = {};
  Tensor gradient[max_carried] = {};
};

namespace detail {

/// Storage that goes back with an op. `keeps_handle`: its place in a graph is still needed.
template <class Tensor> struct give_back {
  Tensor* what = nullptr;
  bool keeps_handle = false;

  template <class Tensors> void operator()(Tensors& tensors) const {
    if (!keeps_handle)
      *what = Tensor{};
    else
      tensors.release(*what);
  }
};

template <class Value, bool IsMetadata = std::derived_from<Value, metadata>> struct metadata_cell {};
template <class Value> struct metadata_cell<Value, true> { typename Value::type content{}; };

/// What a phase gets of a value: as one that it reads, as one that it writes, and by the name alone. Of what it does not
/// declare, a tensor.
template <class Value, class Tensor, bool Reads, bool Writes> struct view_of {
  using read = Tensor const;
  using written = Tensor;
  using named = std::conditional_t<Writes, Tensor, Tensor const>;
};
template <std::derived_from<metadata> Value, class Tensor, bool Reads, bool Writes>
requires(Reads || Writes) struct view_of<Value, Tensor, Reads, Writes> {
  using named = typename Value::type;
  using read = std::conditional_t<Reads, named, Tensor const>;
  using written = std::conditional_t<Writes, named, Tensor>;
};

template <class Phase> struct saved_cell {};
template <class Phase>
requires requires { typename Phase::saved; }
struct saved_cell<Phase> {
  typename Phase::saved content{};
};

/// Stands in for what a phase does not have, so that the broken rule is all that the compiler says.
struct anything {
  template <class Type> anything& operator=(Type&&) { return *this; }
  template <class Type> operator Type() const;
};
inline anything silence;

/// What a node that runs forward again writes then; what it wrote before may be gone, or still be read by others.
template <class Tensor, bool Recomputes, int Roots> struct recomputed_roots {
  Tensor* roots(Tensor* own, bool) { return own; }
};
template <class Tensor, int Roots> struct recomputed_roots<Tensor, true, Roots> {
  Tensor again[extent(Roots)] = {};
  Tensor* roots(Tensor* own, bool recomputed) { return recomputed ? again : own; }
};

template <class Written> struct metadata_cells;
template <class... Values> struct metadata_cells<values<Values...>> : metadata_cell<Values>... {};

template <class Phases> struct phase_cells;
template <class... Ph>
struct phase_cells<phase_list<Ph...>> : metadata_cells<typename Ph::writes>..., saved_cell<Ph>... {};

} // namespace detail

/// The state of one layer of type `Type` of `Model` for one microbatch in flight: one flat struct, made once.
template <class Model, int Type, class Tensors>
struct slot
    : boundary<typename Tensors::tensor>,
      detail::recomputed_roots<typename Tensors::tensor,
                               dataflow_of<typename Model::template block<Type>>::value.any_recomputes(),
                               dataflow_of<typename Model::template block<Type>>::value.roots>,
      detail::phase_cells<typename Model::template block<Type>::phases> {
  using tensor = typename Tensors::tensor;
  using facts = dataflow_of<typename Model::template block<Type>>;

  tensor root[detail::extent(facts::value.roots)] = {}; ///< what the writer made
  tensor root_gradient[detail::extent(facts::value.roots)] = {}; ///< the sum over its readers
  tensor leaf[detail::extent(facts::value.leaves)] = {}; ///< what the reader detached
  tensor leaf_gradient[detail::extent(facts::value.leaves)] = {};
  typename Tensors::context context[detail::extent(facts::value.nodes)] = {};
};

/// The view that phase `Ph` (its number in the block) has of a slot in `forward`, in `backward` (whole or its input half) or in
/// `backward_weight`. Backward has what the phase saves, and metadata; in a weight pass, metadata and outputs are out of reach
/// too: their storage may be back already, so what W needs of them goes into `saved()`. Where a node runs forward again, it and
/// its backward see what it writes then.
template <class Model, int Type, int Ph, class Tensors, pass In = pass::forward, bool Recomputed = false>
class io {
  using slot_type = slot<Model, Type, Tensors>;
  using tensor = typename Tensors::tensor;
  using facts = dataflow_of<typename Model::template block<Type>>;
  using phase_type = typename detail::phase_at<Ph, typename Model::template block<Type>::phases>::type;

  static constexpr bool keeps_something = requires { typename phase_type::saved; };
  template <class Value> static constexpr bool is_metadata = std::derived_from<Value, metadata>;
  template <class Value> static constexpr int leaf_index = facts::value.find_leaf(Ph, detail::id_of<Value>());
  template <class Value>
  static constexpr int root_index = facts::value.find_root_of(Ph, detail::id_of<Value>());
  template <class Value> static constexpr bool reads = leaf_index<Value> >= 0;
  template <class Value> static constexpr bool writes = root_index<Value> >= 0;
  static constexpr bool in_weight_pass = In == pass::backward_weight;
  // Those of what is read have been handed to their writer, and emptied, before the weight half.
  template <class Value>
  static constexpr bool has_gradient = In != pass::forward && !(in_weight_pass && reads<Value>);

  // Not left to the compiler, which would look into a member as soon as it is named: in the middle of asking whether a pass
  // can be called.
  template <class Value> using view = detail::view_of<Value, tensor, reads<Value>, writes<Value>>;

  // What runs forward again has what it read from outside until its input half is over, and what it made itself to the end.
  template <class Value> static constexpr bool input_is_gone() {
    if constexpr (In == pass::forward || is_metadata<Value> || !reads<Value>)
      return false;
    else
      return !facts::value.leaf_is_saved[leaf_index<Value>] &&
             !(Recomputed && (!in_weight_pass || facts::value.leaf_inside_node[leaf_index<Value>]));
  }
  template <class Value> static constexpr bool output_is_gone() {
    if constexpr (In != pass::backward || is_metadata<Value> || !writes<Value>)
      return false;
    else
      return !facts::value.root_is_saved[root_index<Value>] && !Recomputed;
  }

public:
  io(slot_type& state, int layer, int microbatch) : slot_(&state), layer_(layer), microbatch_(microbatch) {}

  // By phase and value: what a phase does in each of its passes is said once.

  /// The tensor or metadata that this phase reads.
  template <class Value> typename view<Value>::read& in(Value) const {
    if constexpr (!reads<Value>) static_assert(sizeof(error::undeclared_read<phase_type, Value>));
    if constexpr (in_weight_pass && is_metadata<Value>)
      static_assert(sizeof(error::gone_before_weight_pass<phase_type, Value>));
    if constexpr (input_is_gone<Value>()) static_assert(sizeof(error::unsaved_read<phase_type, Value>));
    return read<Value>();
  }

  /// The tensor or metadata that this phase writes.
  template <class Value> typename view<Value>::written& out(Value) const {
    if constexpr (!writes<Value>) static_assert(sizeof(error::undeclared_write<phase_type, Value>));
    if constexpr (writes<Value> && in_weight_pass)
      static_assert(sizeof(error::gone_before_weight_pass<phase_type, Value>));
    if constexpr (output_is_gone<Value>()) static_assert(sizeof(error::unsaved_read<phase_type, Value>));
    return written<Value>();
  }

  template <class Value> typename view<Value>::named& operator[](Value) const {
    if constexpr (reads<Value> && writes<Value>)
      static_assert(sizeof(error::ambiguous_name<phase_type, Value>));
    if constexpr (!reads<Value> && !writes<Value>)
      static_assert(sizeof(error::undeclared_read<phase_type, Value>));
    if constexpr (in_weight_pass && (writes<Value> || is_metadata<Value>))
      static_assert(sizeof(error::gone_before_weight_pass<phase_type, Value>));
    if constexpr (input_is_gone<Value>() || output_is_gone<Value>())
      static_assert(sizeof(error::unsaved_read<phase_type, Value>));
    if constexpr (writes<Value>)
      return written<Value>();
    else
      return read<Value>();
  }

  /// In a backward written by hand: the gradient of a value that this phase reads (to be assigned) or writes (given).
  template <class Value> tensor& grad(Value) const {
    if constexpr (reads<Value> && writes<Value>)
      static_assert(sizeof(error::ambiguous_name<phase_type, Value>));
    if constexpr (!reads<Value> && !writes<Value>)
      static_assert(sizeof(error::undeclared_read<phase_type, Value>));
    if constexpr (!has_gradient<Value>) static_assert(sizeof(error::no_gradient<phase_type, Value>));
    if constexpr (writes<Value>)
      return slot_->root_gradient[root_index<Value>];
    else
      return slot_->leaf_gradient[reads<Value> ? leaf_index<Value> : 0];
  }
  template <class Value> tensor& grad_in(Value) const {
    if constexpr (!reads<Value>) static_assert(sizeof(error::undeclared_read<phase_type, Value>));
    if constexpr (In == pass::forward || in_weight_pass)
      static_assert(sizeof(error::no_gradient<phase_type, Value>));
    return slot_->leaf_gradient[reads<Value> ? leaf_index<Value> : 0];
  }
  template <class Value> tensor const& grad_out(Value) const {
    if constexpr (!writes<Value>) static_assert(sizeof(error::undeclared_write<phase_type, Value>));
    if constexpr (In == pass::forward) static_assert(sizeof(error::no_gradient<phase_type, Value>));
    return slot_->root_gradient[writes<Value> ? root_index<Value> : 0];
  }

  /// What this phase keeps from forward to backward.
  auto& saved() const {
    if constexpr (!keeps_something) static_assert(sizeof(error::saved_without_type<phase_type>));
    if constexpr (keeps_something)
      return static_cast<detail::saved_cell<phase_type>&>(*slot_).content;
    else
      return detail::silence;
  }

  int microbatch() const { return microbatch_; }
  /// The place of this layer in the rank's chain of layers, from 0.
  int layer() const { return layer_; }

private:
  // Where a rule is broken these name the first tensor, so that its sentence is all that the compiler says.
  template <class Value> typename view<Value>::read& read() const {
    constexpr int leaf = reads<Value> ? leaf_index<Value> : 0;
    if constexpr (reads<Value> && is_metadata<Value>)
      return static_cast<detail::metadata_cell<Value>&>(*slot_).content;
    else if constexpr (reads<Value> && facts::value.leaf_inside_node[leaf])
      return slot_->roots(slot_->root, Recomputed)[facts::value.leaf_root[leaf]];
    else
      return slot_->leaf[leaf];
  }
  template <class Value> typename view<Value>::written& written() const {
    if constexpr (writes<Value> && is_metadata<Value>)
      return static_cast<detail::metadata_cell<Value>&>(*slot_).content;
    else
      return slot_->roots(slot_->root, Recomputed)[writes<Value> ? root_index<Value> : 0];
  }

  slot_type* slot_;
  int layer_;
  int microbatch_;
};

} // namespace v0
} // namespace stretto
