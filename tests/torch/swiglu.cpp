#include "bits.hpp"
#include "node_ways.hpp"

#include <train_moe/model/expert_products.hpp>
#include <train_moe/model/swiglu.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <torch/csrc/autograd/autograd.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace st = stretto::torch;
using tensors = std::vector<at::Tensor>;

namespace {

using remade = train_moe::after_swiglu<st::linear_op>;

node_under_test::parameters weights(at::ScalarType type) {
  node_under_test::parameters made;
  made.push_back(st::parameter("up", random_tensor({8, 24}, type, 1)));
  made.push_back(st::parameter("down", random_tensor({12, 8}, type, 2)));
  return made;
}
tensors rows(at::ScalarType type, int m) {
  return {random_tensor({24, 8}, type, 100 + static_cast<std::uint64_t>(m))};
}

node_under_test const ours{weights, rows, [](node_under_test::parameters& w, tensors const& x) {
                             return tensors{st::apply_weighted(remade{}, st::linear(x[0], w[0]), w[1])};
                           }};
node_under_test const by_torch{
    weights, rows, [](node_under_test::parameters& w, tensors const& x) {
      auto const both = st::linear(x[0], w[0]);
      return tensors{st::linear(at::silu(both.narrow(1, 0, 12)) * both.narrow(1, 12, 12), w[1])};
    }};

} // namespace

TEST_CASE("swiglu that is made again in backward has the bits of one that is kept", "[torch]") {
  st::use_one_thread();
  auto const type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  auto const kept = gradients_of(by_torch, type, way::ordinary);
  CHECK(kept.of_weights[0].abs().max().item<double>() > 0);
  for (auto const how : {way::ordinary, way::whole, way::split, way::split_late}) {
    CAPTURE(type, static_cast<int>(how));
    auto const found = gradients_of(ours, type, how);
    for (std::size_t i = 0; i < kept.of_inputs.size(); ++i)
      CHECK(same_bits(found.of_inputs[i], kept.of_inputs[i]));
    for (std::size_t i = 0; i < kept.of_weights.size(); ++i)
      CHECK(same_bits(found.of_weights[i], kept.of_weights[i]));
  }
}

namespace {

node_under_test::parameters weights_of_experts(at::ScalarType type) {
  node_under_test::parameters made;
  made.push_back(st::parameter("up", random_tensor({3, 8, 24}, type, 1)));
  made.push_back(st::parameter("down", random_tensor({3, 12, 8}, type, 2)));
  return made;
}
/// Rows and the logarithms of their weights, among them one of weight 1 and two of weight 0.
template <int Rows> tensors weighed_rows(at::ScalarType type, int m) {
  auto const seed = static_cast<std::uint64_t>(m);
  auto logs = random_tensor({Rows, 1}, train_moe::wide_type(type), 200 + seed);
  if (Rows > 0) logs[0].zero_(), logs.narrow(0, Rows - 2, 2).fill_(-std::numeric_limits<double>::infinity());
  return {random_tensor({Rows, 8}, type, 100 + seed), logs};
}
/// The one in the middle has no rows.
template <int Rows> std::vector<std::int64_t> rows_of_experts() { return {Rows * 5 / 6, 0, Rows / 6}; }

/// Weighed by numbers without a gradient, as where rows are weighed on another rank.
template <int Rows>
node_under_test const weighed_elsewhere{
    weights_of_experts, weighed_rows<Rows>, [](node_under_test::parameters& w, tensors const& x) {
      auto const& linears = train_moe::expert_linears_of_torch;
      auto const both = linears.plain(x[0], rows_of_experts<Rows>(), w[0]);
      auto const y = linears.after_swiglu(both, x[1], rows_of_experts<Rows>(), w[1]);
      return tensors{y * x[1].detach().exp().to(y.scalar_type())};
    }};
template <int Rows>
node_under_test const weighed_by_torch{
    weights_of_experts, weighed_rows<Rows>, [](node_under_test::parameters& w, tensors const& x) {
      auto const both = st::expert_linear(x[0], rows_of_experts<Rows>(), w[0]);
      auto const y = st::expert_linear(at::silu(both.narrow(1, 0, 12)) * both.narrow(1, 12, 12),
                                       rows_of_experts<Rows>(), w[1]);
      return tensors{y * x[1].exp().to(y.scalar_type())};
    }};

} // namespace

TEST_CASE("experts know the gradient of the logarithm of a row's weight, and of a weight of zero",
          "[torch]") {
  st::use_one_thread();
  auto const type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  bool const any_rows = GENERATE(true, false);
  auto const how = GENERATE(way::ordinary, way::whole, way::split, way::split_late);
  CAPTURE(type, any_rows, static_cast<int>(how));
  auto const found = gradients_of(any_rows ? weighed_elsewhere<24> : weighed_elsewhere<0>, type, how);
  auto const exact = gradients_of(any_rows ? weighed_by_torch<24> : weighed_by_torch<0>, type, way::ordinary);
  auto const rounding = type == at::kBFloat16 ? 4e-2 : type == at::kFloat ? 1e-5 : 1e-13;
  for (std::size_t i = 0; i < exact.of_inputs.size(); ++i) {
    REQUIRE(found.of_inputs[i].sizes() == exact.of_inputs[i].sizes());
    if (i % 2 == 0) {
      CHECK(same_bits(found.of_inputs[i], exact.of_inputs[i]));
      continue;
    }
    auto const apart = (found.of_inputs[i] - exact.of_inputs[i]).norm().item<double>();
    CHECK(apart <= rounding * exact.of_inputs[i].norm().item<double>());
    if (any_rows) {
      CHECK(exact.of_inputs[i].abs().max().item<double>() > 1);
      CHECK(found.of_inputs[i].narrow(0, 22, 2).eq(0).all().item<bool>());
    }
  }
  for (std::size_t i = 0; i < exact.of_weights.size(); ++i)
    CHECK(same_bits(found.of_weights[i], exact.of_weights[i]));
}

TEST_CASE("swiglu's gradient takes the place of what it read, which is not differentiated again", "[torch]") {
  st::parameter weight("down", random_tensor({12, 8}, at::kFloat, 2));
  auto const x = random_tensor({24, 24}, at::kFloat, 1).set_requires_grad(true);
  auto const gradient_of = [&](at::Tensor const& both, at::Tensor const& y) {
    return ::torch::autograd::grad({y}, {both}, {at::ones_like(y)}, /*retain_graph=*/true)[0];
  };
  auto const both = x.mul(0.5), y = st::apply_weighted(remade{}, both, weight);
  CHECK(gradient_of(both, y).data_ptr() == both.data_ptr());
  CHECK_THROWS_WITH(gradient_of(both, y),
                    Catch::Matchers::ContainsSubstring("modified by an inplace operation"));
  // A leaf is the caller's.
  auto const before = x.detach().clone();
  CHECK(gradient_of(x, st::apply_weighted(remade{}, x, weight)).data_ptr() != x.data_ptr());
  CHECK(same_bits(x, before));
}
