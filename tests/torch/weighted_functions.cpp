#include "bits.hpp"
#include "node_ways.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace st = stretto::torch;
using parameters = node_under_test::parameters;
using tensors = std::vector<at::Tensor>;

namespace {

st::parameter weight(char const* name, at::IntArrayRef sizes, at::ScalarType type, std::uint64_t seed) {
  return st::parameter(name, random_tensor(sizes, type, seed));
}
tensors rows_of_8(at::ScalarType type, int m) {
  return {random_tensor({24, 8}, type, 100 + static_cast<std::uint64_t>(m))};
}

node_under_test const linear_node{
    [](at::ScalarType type) {
      parameters w;
      w.push_back(weight("w", {8, 12}, type, 1));
      return w;
    },
    rows_of_8, [](parameters& w, tensors const& x) { return tensors{st::linear(x[0], w[0])}; }};

node_under_test const norm_node{
    [](at::ScalarType type) {
      parameters w;
      w.push_back(weight("gain", {8}, type, 2));
      return w;
    },
    rows_of_8, [](parameters& w, tensors const& x) { return tensors{st::rms_norm(x[0], w[0])}; }};

node_under_test const expert_node{[](at::ScalarType type) {
                                    parameters w;
                                    w.push_back(weight("experts", {5, 8, 12}, type, 3));
                                    return w;
                                  },
                                  rows_of_8,
                                  [](parameters& w, tensors const& x) {
                                    return tensors{st::expert_linear(x[0], {0, 7, 0, 1, 16}, w[0])};
                                  }};

/// As a library of matrix products would do it: weight gradients in float, added where they belong.
struct accumulating_experts : st::expert_linear_op {
  void add_weight_gradient(at::Tensor const& x, at::Tensor const& dy, at::Tensor const& sum) const {
    std::int64_t first = 0;
    for (std::size_t expert = 0; expert < rows.size(); first += rows[expert++]) {
      auto part = sum[static_cast<std::int64_t>(expert)];
      auto const rows_of = [&](at::Tensor const& t) {
        return t.narrow(0, first, rows[expert]).to(sum.scalar_type());
      };
      part.addmm_(rows_of(x).t(), rows_of(dy));
    }
  }

private:
  using st::expert_linear_op::weight_gradient;
};
static_assert(st::accumulating_op<accumulating_experts> && !st::accumulating_op<st::expert_linear_op>);

node_under_test const accumulating_node{
    expert_node.make, rows_of_8, [](parameters& w, tensors const& x) {
      return tensors{st::expert_linear(x[0], accumulating_experts{{{0, 7, 0, 1, 16}}}, w[0])};
    }};

/// Rows that take little more than what they were made from.
struct product_of_squares : st::linear_op {
  at::Tensor from;
  at::Tensor input() const { return from.square(); }
};
static_assert(st::remaking_op<product_of_squares> && !st::remaking_op<st::linear_op>);

node_under_test const remaking_node{
    linear_node.make, rows_of_8, [](parameters& w, tensors const& x) {
      return tensors{st::apply_weighted(product_of_squares{{}, x[0].detach()}, x[0].square(), w[0])};
    }};

/// Weighs its results by numbers of their rows, for whoever multiplies by them later.
struct product_to_be_weighed : st::linear_op {
  mutable at::Tensor along{};
  at::Tensor input_gradient(at::Tensor const& x, at::Tensor const& dy, at::Tensor const& w) const {
    auto dx = linear_op::input_gradient(dy, w);
    along = dx.mul(x).sum(1, true);
    return dx;
  }
  at::Tensor beside_gradient() const { return std::exchange(along, {}); }
};
static_assert(st::beside_op<product_to_be_weighed> && !st::beside_op<st::linear_op>);
tensors rows_of_8_and_numbers(at::ScalarType type, int m) {
  return {rows_of_8(type, m)[0], random_tensor({24, 1}, type, 300 + static_cast<std::uint64_t>(m))};
}

node_under_test const beside_node{
    linear_node.make, rows_of_8_and_numbers, [](parameters& w, tensors const& x) {
      auto const product = st::apply_weighted(product_to_be_weighed{}, x[0], x[1], w[0]);
      return tensors{product * x[1].detach().exp()};
    }};

node_under_test const no_rows_node{expert_node.make,
                                   [](at::ScalarType type, int) {
                                     return tensors{random_tensor({0, 8}, type, 1)};
                                   },
                                   [](parameters& w, tensors const& x) {
                                     return tensors{st::expert_linear(x[0], {0, 0, 0, 0, 0}, w[0])};
                                   }};

/// No input of this node can have a gradient.
node_under_test const embedding_node{
    [](at::ScalarType type) {
      parameters w;
      w.push_back(weight("table", {16, 8}, type, 4));
      return w;
    },
    [](at::ScalarType, int m) {
      return tensors{at::tensor({3, 1, 3, 15, 3, 0, 1, 3}, at::kLong).add(m).remainder(16)};
    },
    [](parameters& w, tensors const& x) { return tensors{st::embedding(x[0], w[0])}; }};

/// Ordinary operations use parameters between functions that own theirs; two roots, two inputs.
node_under_test const mixed_node{
    [](at::ScalarType type) {
      parameters w;
      w.push_back(weight("up", {8, 12}, type, 5));
      w.push_back(weight("bias", {12}, type, 6));
      w.push_back(weight("down", {12, 8}, type, 7));
      w.push_back(weight("plain", {8, 8}, type, 8));
      return w;
    },
    [](at::ScalarType type, int m) {
      auto const seed = static_cast<std::uint64_t>(m);
      return tensors{random_tensor({24, 8}, type, 200 + seed), random_tensor({24, 8}, type, 300 + seed)};
    },
    [](parameters& w, tensors const& x) {
      auto const inner = at::silu(st::linear(x[0], w[0]) + w[1].value());
      auto const outer = st::linear(inner, w[2]) + x[1];
      return tensors{outer * x[0], outer.mm(w[3].value())};
    }};

node_under_test const frozen_node{[](at::ScalarType type) {
                                    parameters w;
                                    w.emplace_back("frozen", random_tensor({8, 12}, type, 9), false);
                                    w.push_back(weight("trained", {12, 8}, type, 10));
                                    w.emplace_back("frozen bias", random_tensor({8}, type, 11), false);
                                    return w;
                                  },
                                  rows_of_8,
                                  [](parameters& w, tensors const& x) {
                                    return tensors{st::linear(st::linear(x[0], w[0]), w[1]) + w[2].value()};
                                  }};

node_under_test const bare_node{[](at::ScalarType) { return parameters{}; }, rows_of_8,
                                [](parameters&, tensors const& x) { return tensors{at::tanh(x[0])}; }};

void check_same(node_gradients const& a, node_gradients const& b) {
  REQUIRE(a.of_inputs.size() == b.of_inputs.size());
  for (std::size_t i = 0; i < a.of_inputs.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(a.of_inputs[i], b.of_inputs[i]));
  }
  REQUIRE(a.of_weights.size() == b.of_weights.size());
  for (std::size_t i = 0; i < a.of_weights.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bits(a.of_weights[i], b.of_weights[i]));
  }
}

struct named_node {
  char const* name;
  node_under_test const* node;
};
named_node const nodes[] = {{"linear", &linear_node},
                            {"norm", &norm_node},
                            {"experts", &expert_node},
                            {"experts without rows", &no_rows_node},
                            {"experts that accumulate", &accumulating_node},
                            {"rows that are made again", &remaking_node},
                            {"a second input", &beside_node},
                            {"embedding", &embedding_node},
                            {"mixed", &mixed_node},
                            {"frozen", &frozen_node},
                            {"without parameters", &bare_node}};

} // namespace

TEST_CASE("whole, split and ordinary backward give the same bits", "[torch][building-blocks-14]") {
  st::use_one_thread();
  auto const& [name, node] = GENERATE(Catch::Generators::from_range(nodes));
  auto const type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  CAPTURE(name, type);
  auto const ordinary = gradients_of(*node, type, way::ordinary);
  for (auto const& gradient : ordinary.of_weights) {
    if (gradient.defined() && node != &no_rows_node) CHECK(gradient.abs().max().item<double>() > 0);
  }
  for (auto const how : {way::whole, way::split, way::split_late}) {
    CAPTURE(static_cast<int>(how));
    check_same(ordinary, gradients_of(*node, type, how));
  }
}

TEST_CASE("functions with their own weight gradient agree with torch's operations", "[torch]") {
  namespace ag = ::torch::autograd;
  auto const x = random_tensor({24, 8}, at::kDouble, 1).set_requires_grad(true);
  auto const check = [&](at::Tensor const& ours, at::Tensor const& theirs, st::parameter& w) {
    REQUIRE(at::allclose(ours, theirs, 1e-12, 1e-12));
    auto const dy = random_tensor(ours.sizes(), at::kDouble, 2);
    auto const a = ag::grad({ours}, {x, w.leaf()}, {dy}, {}, false, true);
    auto const b = ag::grad({theirs}, {x, w.leaf()}, {dy}, {}, false, true);
    for (std::size_t i = 0; i < a.size(); ++i) {
      REQUIRE(a[i].defined() == b[i].defined());
      if (a[i].defined()) CHECK(at::allclose(a[i], b[i], 1e-12, 1e-12));
    }
  };
  SECTION("linear") {
    auto w = weight("w", {8, 5}, at::kDouble, 3);
    check(st::linear(x, w), x.mm(w.leaf()), w);
  }
  SECTION("norm") {
    auto w = weight("w", {8}, at::kDouble, 3);
    check(st::rms_norm(x, w), x * x.square().mean(1, /*keepdim=*/true).add(1e-6).rsqrt() * w.leaf(), w);
  }
  SECTION("embedding") {
    auto w = weight("w", {9, 4}, at::kDouble, 3);
    auto const ids = at::tensor({0, 8, 8, 3, 0, 8}, at::kLong);
    check(st::embedding(ids, w), w.leaf().index_select(0, ids), w);
  }
  SECTION("experts") {
    auto w = weight("w", {3, 8, 5}, at::kDouble, 3);
    auto const theirs = at::cat({x.narrow(0, 0, 20).mm(w.leaf()[0]), x.narrow(0, 20, 4).mm(w.leaf()[2])});
    check(st::expert_linear(x, {20, 0, 4}, w), theirs, w);
  }
}

TEST_CASE("an operation that accumulates by itself sums what the others sum", "[torch]") {
  auto const how = GENERATE(way::ordinary, way::whole, way::split_late);
  auto const type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  auto const ours = gradients_of(accumulating_node, type, how), theirs = gradients_of(expert_node, type, how);
  for (std::size_t i = 0; i < ours.of_inputs.size(); ++i)
    CHECK(same_bits(ours.of_inputs[i], theirs.of_inputs[i]));
  auto const rounding = type == at::kBFloat16 ? 2e-2 : type == at::kFloat ? 1e-5 : 1e-12;
  CHECK(at::allclose(ours.of_weights[0], theirs.of_weights[0], rounding, rounding));
  CHECK(ours.of_weights[0].abs().max().item<double>() > 0);
}

TEST_CASE("rows that are made again are not kept, and change no bit", "[torch]") {
  auto const how = GENERATE(way::ordinary, way::whole, way::split_late);
  static node_under_test const keeping{linear_node.make, rows_of_8, [](parameters& w, tensors const& x) {
                                         return tensors{st::linear(x[0].square(), w[0])};
                                       }};
  check_same(gradients_of(keeping, at::kBFloat16, how), gradients_of(remaking_node, at::kBFloat16, how));
  auto w = weight("w", {8, 8}, at::kFloat, 1);
  auto const x = random_tensor({4, 8}, at::kFloat, 2).set_requires_grad(true);
  auto const rows = x.square();
  auto const remade = st::apply_weighted(product_of_squares{{}, x.detach()}, rows, w);
  CHECK(rows.use_count() == 1);
  auto const kept = st::linear(rows, w);
  CHECK(rows.use_count() > 1);
  CHECK(same_bits(remade, kept));
}

TEST_CASE("a second input has a gradient also where the first has none", "[torch]") {
  bool const of_rows = GENERATE(true, false);
  auto w = weight("w", {8, 12}, at::kDouble, 1);
  auto const x = random_tensor({24, 8}, at::kDouble, 2).set_requires_grad(of_rows);
  auto const logs = random_tensor({24, 1}, at::kDouble, 3).set_requires_grad(true);
  auto const dy = random_tensor({24, 12}, at::kDouble, 4);
  auto const y = st::apply_weighted(product_to_be_weighed{}, x, logs, w) * logs.detach().exp();
  auto const theirs = x.detach().mm(w.data()) * logs.exp();
  CHECK(at::allclose(::torch::autograd::grad({y}, {logs}, {dy})[0],
                     ::torch::autograd::grad({theirs}, {logs}, {dy})[0], 1e-12, 1e-12));
}

TEST_CASE("experts refuse counts that do not fit", "[torch]") {
  auto w = weight("w", {3, 8, 5}, at::kFloat, 1);
  auto const x = random_tensor({4, 8}, at::kFloat, 2);
  CHECK_THROWS_AS(st::expert_linear(x, {1, 1, 1}, w), std::invalid_argument);
  CHECK_THROWS_AS(st::expert_linear(x, {2, 2}, w), std::invalid_argument);
}

TEST_CASE("a parameter that a node uses twice gets both gradients", "[torch]") {
  static node_under_test const twice{
      [](at::ScalarType type) {
        parameters w;
        w.push_back(weight("tied", {8, 8}, type, 12));
        return w;
      },
      rows_of_8,
      [](parameters& w, tensors const& x) {
        return tensors{st::linear(at::tanh(st::linear(x[0], w[0])), w[0]).mm(w[0].value())};
      }};
  auto const type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  auto const whole = gradients_of(twice, type, way::whole);
  check_same(whole, gradients_of(twice, type, way::split));
  check_same(whole, gradients_of(twice, type, way::split_late));
  if (type == at::kDouble) {
    auto const ordinary = gradients_of(twice, type, way::ordinary);
    CHECK(at::allclose(whole.of_weights[0], ordinary.of_weights[0], 1e-12, 1e-12));
  }
}

TEST_CASE("the input half leaves the accumulators alone", "[torch]") {
  st::tensors adapter;
  auto w = weight("w", {8, 8}, at::kFloat, 1);
  st::tensors::context context;
  auto leaf = adapter.detach(random_tensor({4, 8}, at::kFloat, 2));
  at::Tensor root, gradient;
  {
    auto const scope = adapter.forward_scope(context);
    root = st::linear(leaf, w) + leaf.mm(w.value());
  }
  auto root_gradient = at::ones_like(root);
  stretto::gradient_request<at::Tensor> const request{&root, &root_gradient, nullptr, 1, &leaf, &gradient, 1};
  adapter.backward_input(context, request);
  CHECK(gradient.defined());
  CHECK(w.main_grad().abs().max().item<float>() == 0.0f);
  CHECK_FALSE(w.leaf().grad().defined());
  adapter.backward_weight(context);
  CHECK(w.main_grad().abs().max().item<float>() > 0.0f);
  CHECK_FALSE(w.leaf().grad().defined());
  CHECK_FALSE(leaf.grad().defined());
}

TEST_CASE("roots without a gradient and leaves out of reach", "[torch]") {
  st::tensors adapter;
  auto w = weight("w", {8, 8}, at::kFloat, 1);
  auto const split = GENERATE(false, true);
  st::tensors::context context;
  at::Tensor leaves[] = {adapter.detach(random_tensor({4, 8}, at::kFloat, 2)),
                         adapter.detach(random_tensor({4, 8}, at::kFloat, 3)),
                         adapter.detach(at::tensor({1, 2, 3}, at::kLong))};
  at::Tensor roots[3];
  {
    auto const scope = adapter.forward_scope(context);
    roots[0] = st::linear(leaves[0], w);
    roots[1] = leaves[1] * 2;
    roots[2] = leaves[2] + 1;
  }
  at::Tensor root_gradients[] = {at::ones_like(roots[0]), {}, {}};
  at::Tensor leaf_gradients[] = {{}, at::ones({1}), {}};
  stretto::gradient_request<at::Tensor> const request{roots,  root_gradients, nullptr, 3,
                                                      leaves, leaf_gradients, 3};
  auto const run = [&] {
    if (!split) return adapter.backward(context, request);
    adapter.backward_input(context, request);
    adapter.backward_weight(context);
  };
  SECTION("one root") {
    run();
    CHECK(leaf_gradients[0].defined());
    CHECK_FALSE(leaf_gradients[1].defined());
    CHECK_FALSE(leaf_gradients[2].defined());
  }
  SECTION("no root") {
    root_gradients[0].reset();
    run();
    CHECK_FALSE(leaf_gradients[0].defined());
    CHECK_FALSE(leaf_gradients[1].defined());
    CHECK(w.main_grad().abs().max().item<float>() == 0.0f);
  }
}

TEST_CASE("a value passed on untouched", "[torch]") {
  st::tensors adapter;
  st::tensors::context context;
  auto leaf = adapter.detach(random_tensor({4, 8}, at::kFloat, 2));
  at::Tensor root, gradient;
  {
    auto const scope = adapter.forward_scope(context);
    root = leaf;
  }
  auto root_gradient = random_tensor({4, 8}, at::kFloat, 3);
  adapter.backward(context, {&root, &root_gradient, nullptr, 1, &leaf, &gradient, 1});
  CHECK(same_bits(gradient, root_gradient));
}

TEST_CASE("released storage: backward without it works, backward that needs it is an error",
          "[torch][megatron-01][megatron-b]") {
  st::tensors adapter;
  auto w = weight("w", {8, 8}, at::kFloat, 1);
  st::tensors::context writer, reader;
  auto before = adapter.detach(random_tensor({4, 8}, at::kFloat, 2));
  at::Tensor root, after, gradient, back;
  {
    auto const scope = adapter.forward_scope(writer);
    root = st::linear(before, w);
  }
  auto const saved = GENERATE(0, 1, 2);
  auto leaf = adapter.detach(root);
  {
    auto const scope = adapter.forward_scope(reader);
    after = saved == 0 ? leaf + 1 : saved == 1 ? leaf * leaf : st::linear(leaf, w);
  }
  adapter.release(root);
  CHECK_THROWS(root.const_data_ptr());
  auto ones = at::ones_like(after);
  stretto::gradient_request<at::Tensor> const request{&after, &ones, nullptr, 1, &leaf, &gradient, 1};
  if (saved != 0) {
    CHECK_THROWS_WITH(adapter.backward(reader, request), Catch::Matchers::ContainsSubstring("`saves`"));
    return;
  }
  adapter.backward(reader, request);
  adapter.backward(writer, {&root, &gradient, nullptr, 1, &before, &back, 1});
  CHECK(same_bits(back, at::ones({4, 8}).mm(w.data().t())));
  CHECK(w.main_grad().abs().max().item<float>() > 0);
}

TEST_CASE("an objective's gradient is one", "[torch]") {
  st::tensors adapter;
  st::tensors::context context;
  auto leaf = adapter.detach(random_tensor({4}, at::kDouble, 2));
  at::Tensor root, root_gradient, gradient;
  {
    auto const scope = adapter.forward_scope(context);
    root = (leaf * leaf).sum();
  }
  bool const is_objective = true;
  adapter.backward(context, {&root, &root_gradient, &is_objective, 1, &leaf, &gradient, 1});
  CHECK(at::allclose(gradient, 2 * leaf.detach()));
}

TEST_CASE("a forward in a scope whose backward goes past the adapter is told so", "[torch]") {
  st::tensors adapter;
  st::tensors::context context;
  auto w = weight("the weight", {8, 8}, at::kFloat, 1);
  auto leaf = adapter.detach(random_tensor({4, 8}, at::kFloat, 2));
  at::Tensor root;
  {
    auto const scope = adapter.forward_scope(context);
    root = st::linear(leaf, w);
  }
  CHECK_THROWS_AS(::torch::autograd::grad({root}, {leaf}, {at::ones_like(root)}), std::logic_error);
}

TEST_CASE("rows in another order", "[torch]") {
  namespace ag = ::torch::autograd;
  auto const x = random_tensor({4, 3}, at::kDouble, 1).set_requires_grad(true);
  auto const order = at::tensor({7, 0, 3, 2, 5, 1, 4, 6}, at::kLong);
  auto const inverse = order.argsort();
  auto const ours = st::permute_rows(x, order, inverse, 2);
  auto const theirs = x.index_select(0, order.floor_divide(2));
  CHECK(same_bits(ours, theirs));
  auto const dy = random_tensor({8, 3}, at::kDouble, 2);
  CHECK(at::allclose(ag::grad({ours}, {x}, {dy})[0], ag::grad({theirs}, {x}, {dy})[0], 1e-15, 1e-15));
  auto const none = at::empty({0, 3}, at::kDouble).set_requires_grad(true);
  auto const no_order = at::empty({0}, at::kLong);
  auto const nothing = st::permute_rows(none, no_order, no_order, 2);
  CHECK(ag::grad({nothing}, {none}, {at::empty({0, 3}, at::kDouble)})[0].size(0) == 0);
}
