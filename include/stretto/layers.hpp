#pragma once

#include <stretto/block.hpp>
#include <stretto/detail/extent.hpp>
#include <stretto/detail/sequence.hpp>

#include <cstdlib>
#include <utility>

namespace stretto {
inline namespace v0 {

namespace detail {

/// Owns an object whose type its maker knows.
class owned {
public:
  owned() = default;
  template <class Type>
  explicit owned(Type* what) : what_(what), drop_([](void* it) { delete static_cast<Type*>(it); }) {}
  owned(owned&& other) noexcept : what_(std::exchange(other.what_, nullptr)), drop_(other.drop_) {}
  owned& operator=(owned&& other) noexcept {
    std::swap(what_, other.what_);
    std::swap(drop_, other.drop_);
    return *this;
  }
  ~owned() {
    if (what_ != nullptr) drop_(what_);
  }
  void* get() const { return what_; }

private:
  void* what_ = nullptr;
  void (*drop_)(void*) = nullptr;
};

} // namespace detail

/// The layers that one rank owns, of any mix of the model's block types, in the order in which a forward runs them.
/// Which layers there are is run-time data; only the block types are compiled. Layers keep their addresses.
template <class Model> class layer_list {
  template <int Type> using layer_of_type = layer<typename Model::template block<Type>>;
  template <class Block, int Type = 0> static constexpr int number_of() {
    if constexpr (Type == Model::count)
      return -1;
    else if constexpr (std::same_as<Block, typename Model::template block<Type>>)
      return Type;
    else
      return number_of<Block, Type + 1>();
  }

public:
  /// A layer: its block type, and its number among the layers of that type.
  struct reference {
    int type;
    int index;
  };

  /// Appends a layer of type `Block` to the last chunk.
  template <class Block> layer<Block>& add(layer<Block> next) {
    constexpr int k = number_of<Block>();
    static_assert(k >= 0, STRETTO_E38);
    if constexpr (k >= 0) {
      auto* const added = new layer<Block>(std::move(next));
      owners_.push_back(detail::owned(added));
      order_.push_back({k, count_[k]++});
      return *added;
    } else {
      std::abort();
    }
  }
  /// Ends a chunk; what is added from now on belongs to the next one. A chunk may be empty.
  void next_chunk() { first_.push_back(size()); }

  int size() const { return static_cast<int>(order_.size()); }
  int chunks() const { return static_cast<int>(first_.size()); }
  /// The first layer of a chunk; `first(chunks())` is `size()`.
  int first(int chunk) const { return chunk < chunks() ? first_[chunk] : size(); }
  reference operator[](int i) const { return order_[i]; }
  /// How many layers of block type number `type` there are.
  int count(int type) const { return count_[type]; }
  /// Layer `i`, as one of the block type that it has.
  template <int Type> layer_of_type<Type>& at(int i) {
    return *static_cast<layer_of_type<Type>*>(address(i));
  }
  void* address(int i) { return owners_[i].get(); }

  /// Calls `f(layer, number)` with every layer, in order; `number` is its place in the list.
  template <class Act> void for_each(Act&& f) {
    for (int i = 0; i < size(); ++i) visit(i, f);
  }

private:
  template <class Act, int Type = 0> void visit(int i, Act& f) {
    if constexpr (Type < Model::count) {
      if (order_[i].type == Type)
        f(at<Type>(i), i);
      else
        visit<Act, Type + 1>(i, f);
    }
  }

  detail::sequence<detail::owned> owners_;
  detail::sequence<reference> order_;
  detail::sequence<int> first_ = detail::sequence<int>(1);
  int count_[detail::extent(Model::count)] = {};
};

/// Of what is no model: said here, or where it was composed.
template <class Model>
requires(!detail::sound_model<Model>) class layer_list<Model> {
  static_assert(
      detail::refused<Model>,
      "stretto: a list of layers is given something that is no model; write layer_list<Step::model> "
      "of the schedule Step, or layer_list<Model> of a Model made of Blocks<...>");

public:
  template <class Layer> Layer& add(Layer next);
  void next_chunk();
};

} // namespace v0
} // namespace stretto
