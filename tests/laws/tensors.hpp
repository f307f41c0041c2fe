#pragma once

#include <stretto/adapter.hpp>

#include <cstddef>
#include <utility>
#include <vector>

/// What every `tensor_adapter` must do. Each law returns whether the adapter kept it. Its user says how a tensor is made and
/// looked at: `make(std::vector<double>)` gives a tensor, `read(tensor)` its numbers, none for an empty one.
namespace laws {

namespace detail {
inline std::vector<double> const some = {1, -2, 3.5, 0.25}, others = {0.5, 4, -1, 8},
                                 sums = {1.5, 2, 2.5, 8.25};
}

template <class Tensors, class Make, class Read>
bool a_leaf_has_the_data_of_its_root(Tensors& tensors, Make make, Read read) {
  auto const root = make(detail::some);
  return read(tensors.detach(root)) == detail::some && read(root) == detail::some;
}

/// Assigning the root gives its handle back; the leaf of a reader goes on.
template <class Tensors, class Make, class Read>
bool a_leaf_outlives_its_root(Tensors& tensors, Make make, Read read) {
  auto root = make(detail::some);
  auto const leaf = tensors.detach(root);
  root = typename Tensors::tensor{};
  return read(root).empty() && read(leaf) == detail::some;
}

template <class Tensors, class Make, class Read>
bool empty_tensors_add_nothing(Tensors& tensors, Make make, Read read) {
  typename Tensors::tensor sum{};
  typename Tensors::tensor const nothing{};
  tensors.add(sum, nothing);
  bool kept = read(sum).empty();
  tensors.add(sum, make(detail::some));
  kept = kept && read(sum) == detail::some;
  tensors.add(sum, nothing);
  return kept && read(sum) == detail::some;
}

template <class Tensors, class Make, class Read> bool sums_are_sums(Tensors& tensors, Make make, Read read) {
  auto sum = make(detail::some);
  tensors.add(sum, make(detail::others));
  return read(sum) == detail::sums;
}

/// Gradients alias: neither what was added up to now nor what is added changes for those who hold it too.
template <class Tensors, class Make, class Read>
bool adding_changes_no_other_tensor(Tensors& tensors, Make make, Read read) {
  auto const first = make(detail::some), second = make(detail::others);
  typename Tensors::tensor sum{};
  tensors.add(sum, first);
  auto const held = tensors.detach(sum);
  tensors.add(sum, second);
  tensors.add(sum, second);
  return read(held) == detail::some && read(first) == detail::some && read(second) == detail::others;
}

/// The same calls give the same bits, and terms are added one by one in the order of the calls.
template <class Tensors, class Make, class Read>
bool sums_follow_the_calls(Tensors& tensors, Make make, Read read) {
  std::vector<std::vector<double>> terms;
  for (double const x : {1.0, 1.0 / 3, 1.0 / 7, -1.0 / 11, 1e-7, 3e7}) terms.push_back({x, -x});
  auto all = [&] {
    typename Tensors::tensor sum{};
    for (auto const& term : terms) tensors.add(sum, make(term));
    return read(sum);
  };
  auto by_steps = make(terms[0]);
  for (std::size_t i = 1; i < terms.size(); ++i) {
    auto next = tensors.detach(by_steps);
    tensors.add(next, make(terms[i]));
    by_steps = std::move(next);
  }
  auto const once = all();
  for (int again = 0; again < 20; ++again)
    if (all() != once) return false;
  return read(by_steps) == once;
}

template <class Tensors> bool an_empty_tensor_is_released(Tensors& tensors) {
  typename Tensors::tensor nothing{};
  try {
    tensors.release(nothing);
    tensors.release(nothing);
  } catch (...) {
    return false;
  }
  return true;
}

/// `live()`: how much storage lives, in whatever unit. Releasing a root gives its storage back although a leaf lives, once.
template <class Tensors, class Make, class Live>
bool a_release_gives_storage_back(Tensors& tensors, Make make, Live live) {
  auto const before = live();
  auto root = make(detail::some);
  auto leaf = tensors.detach(root);
  bool const took = live() > before;
  tensors.release(root);
  bool const gave = live() == before;
  tensors.release(root);
  root = typename Tensors::tensor{};
  leaf = typename Tensors::tensor{};
  return took && gave && live() == before;
}

/// So does the last handle, and a leaf takes nothing of its own.
template <class Tensors, class Make, class Live>
bool the_last_handle_gives_storage_back(Tensors& tensors, Make make, Live live) {
  auto const before = live();
  auto root = make(detail::some);
  auto const one = live();
  auto leaf = tensors.detach(root);
  bool kept = live() == one;
  root = typename Tensors::tensor{};
  kept = kept && live() == one;
  leaf = typename Tensors::tensor{};
  return kept && live() == before;
}

} // namespace laws
