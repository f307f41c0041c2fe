#include "bits.hpp"
#include "node_ways.hpp"

#include <train_moe/model/swiglu.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <torch/csrc/autograd/autograd.h>

#include <cstddef>
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
