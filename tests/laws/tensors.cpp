#include "laws/tensors.hpp"

#include "support/toy.hpp"

#include <stretto/adapters/array.hpp>

#include <catch2/catch_test_macros.hpp>

namespace {

using stretto::array::tensor;

/// How the laws make and look at arrays.
struct arrays_kit {
  stretto::array::memory& memory;
  tensor operator()(std::vector<double> const& numbers) const {
    tensor made(memory, 1, static_cast<int>(numbers.size()));
    for (std::size_t i = 0; i < numbers.size(); ++i) made.data()[i] = static_cast<float>(numbers[i]);
    return made;
  }
  static std::vector<double> read(tensor const& t) {
    std::vector<double> numbers;
    for (std::size_t i = 0; i < t.size(); ++i) numbers.push_back(static_cast<double>(t.data()[i]));
    return numbers;
  }
};

/// Which laws an adapter over arrays keeps, in the order below.
template <class Tensors> std::vector<bool> kept_by() {
  Tensors arrays;
  arrays_kit const make{arrays.memory()};
  auto const live = [&] { return arrays.memory().live(); };
  return {laws::a_leaf_has_the_data_of_its_root(arrays, make, arrays_kit::read),
          laws::a_leaf_outlives_its_root(arrays, make, arrays_kit::read),
          laws::empty_tensors_add_nothing(arrays, make, arrays_kit::read),
          laws::sums_are_sums(arrays, make, arrays_kit::read),
          laws::adding_changes_no_other_tensor(arrays, make, arrays_kit::read),
          laws::sums_follow_the_calls(arrays, make, arrays_kit::read),
          laws::an_empty_tensor_is_released(arrays),
          laws::a_release_gives_storage_back(arrays, make, live),
          laws::the_last_handle_gives_storage_back(arrays, make, live)};
}
std::vector<bool> all_but(std::vector<std::size_t> const& broken) {
  std::vector<bool> kept(9, true);
  for (std::size_t const law : broken) kept[law] = false;
  return kept;
}

struct changes_leaves : stretto::array::tensors {
  tensor detach(tensor const& root) const {
    tensor leaf = root;
    leaf.data()[0] += 1;
    return leaf;
  }
};
struct copies_leaves : stretto::array::tensors {
  tensor detach(tensor const& root) const { return root; }
};
struct forgets_the_first_term : stretto::array::tensors {
  void add(tensor& sum, tensor const& term) const {
    if (!sum.empty() && !term.empty()) stretto::array::tensors::add(sum, term);
  }
};
struct adds_twice : stretto::array::tensors {
  void add(tensor& sum, tensor const& term) const {
    bool const first = sum.empty();
    stretto::array::tensors::add(sum, term);
    if (!first) stretto::array::tensors::add(sum, term);
  }
};
struct adds_in_place : stretto::array::tensors {
  void add(tensor& sum, tensor const& term) const {
    if (term.empty()) return;
    if (sum.empty())
      sum = term.share();
    else
      stretto::array::add_to(sum, term);
  }
};
struct rounds_at_random : stretto::array::tensors {
  mutable unsigned calls = 0;
  void add(tensor& sum, tensor const& term) const {
    stretto::array::tensors::add(sum, term);
    if (++calls % 7 == 0 && !sum.empty() && std::abs(sum.data()[0]) > 1e6F) {
      tensor other = sum;
      other.data()[0] = std::nextafter(other.data()[0], 0.0F);
      sum = std::move(other);
    }
  }
};
struct looks_before_it_releases : stretto::array::tensors {
  void release(tensor& root) const {
    if (root.account().live() > 0) root.give_back();
  }
};
struct never_releases : stretto::array::tensors {
  void release(tensor&) const {}
};

} // namespace

TEST_CASE("arrays keep the laws of tensors", "[laws]") {
  CHECK(kept_by<stretto::array::tensors>() == all_but({}));
}

TEST_CASE("numbers keep the laws of tensors that ask for no storage", "[laws]") {
  toy::tensors<toy::number> numbers;
  auto const make = [](std::vector<double> const& of) { return toy::number(of[0]); };
  auto const read = [](toy::number const& n) {
    return n.empty() ? std::vector<double>{} : std::vector<double>{n.value};
  };
  CHECK(laws::sums_follow_the_calls(numbers, make, read));
  CHECK(laws::an_empty_tensor_is_released(numbers));
}

TEST_CASE("the laws of tensors see adapters that break them", "[laws]") {
  CHECK(kept_by<changes_leaves>() == all_but({0, 1, 4, 5, 7, 8}));
  CHECK(kept_by<copies_leaves>() == all_but({7, 8}));
  CHECK(kept_by<forgets_the_first_term>() == all_but({2, 4, 5}));
  CHECK(kept_by<adds_twice>() == all_but({3}));
  CHECK(kept_by<adds_in_place>() == all_but({4}));
  CHECK(kept_by<rounds_at_random>() == all_but({5}));
  CHECK(kept_by<looks_before_it_releases>() == all_but({6}));
  CHECK(kept_by<never_releases>() == all_but({7}));
}
