#pragma once

#include <stretto/block.hpp>

#include <cstdlib>
#include <deque>
#include <tuple>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {

/// The layers that one rank owns, of any mix of the model's block types, in the order in which a forward runs them.
/// Which layers there are is run-time data; only the block types are compiled. Layers keep their addresses.
template <model_type Model> class layer_list {
  template <class Sequence> struct storage;
  template <int... K> struct storage<std::integer_sequence<int, K...>> {
    using type = std::tuple<std::deque<layer<typename Model::template block<K>>>...>;
  };
  template <class B, int K = 0> static constexpr int number_of() {
    if constexpr (K == Model::count)
      return -1;
    else if constexpr (std::same_as<B, typename Model::template block<K>>)
      return K;
    else
      return number_of<B, K + 1>();
  }

 public:
  /// A layer: its block type, and its number among the layers of that type.
  struct reference {
    int type;
    int index;
  };

  /// Appends a layer of block type `B` to the last chunk.
  template <class B> layer<B>& add(layer<B> next) {
    constexpr int k = number_of<B>();
    static_assert(k >= 0, STRETTO_E38);
    if constexpr (k >= 0) {
      auto& same = std::get<k>(layers_);
      same.push_back(std::move(next));
      order_.push_back({k, static_cast<int>(same.size()) - 1});
      return same.back();
    } else {
      std::abort();
    }
  }
  /// Ends a chunk; what is added from now on belongs to the next one. A chunk may be empty.
  void next_chunk() { first_.push_back(static_cast<int>(order_.size())); }

  int size() const { return static_cast<int>(order_.size()); }
  int chunks() const { return static_cast<int>(first_.size()); }
  /// The first layer of a chunk; `first(chunks())` is `size()`.
  int first(int chunk) const { return chunk < chunks() ? first_[static_cast<unsigned>(chunk)] : size(); }
  reference operator[](int i) const { return order_[static_cast<unsigned>(i)]; }
  template <int K> auto& of_type() { return std::get<K>(layers_); }

  /// Calls `f(layer, number)` with every layer, in order; `number` is its place in the list.
  template <class F> void for_each(F&& f) {
    for (int i = 0; i < size(); ++i) visit(i, f);
  }

 private:
  template <class F, int K = 0> void visit(int i, F& f) {
    if constexpr (K < Model::count) {
      reference const r = (*this)[i];
      if (r.type == K)
        f(std::get<K>(layers_)[static_cast<unsigned>(r.index)], i);
      else
        visit<F, K + 1>(i, f);
    }
  }

  typename storage<std::make_integer_sequence<int, Model::count>>::type layers_;
  std::vector<reference> order_;
  std::vector<int> first_ = {0};
};

}  // namespace v0
}  // namespace stretto
