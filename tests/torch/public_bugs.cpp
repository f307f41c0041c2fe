// Bugs of other trainers as small programs over libtorch: each tag is a row of docs/public_bugs.md.
#include "bits.hpp"
#include "node_ways.hpp"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/generators/catch_generators_range.hpp>

namespace st = stretto::torch;
namespace ag = ::torch::autograd;
using parameters = node_under_test::parameters;
using tensors = std::vector<at::Tensor>;

namespace {

parameters one_weight(at::ScalarType type) {
  parameters w;
  w.emplace_back("w", random_tensor({8, 8}, type, 1));
  return w;
}
tensors rows_of_8(at::ScalarType type, int m) {
  return {random_tensor({24, 8}, type, 100 + static_cast<std::uint64_t>(m))};
}

/// Runs its forward again in backward, as a checkpoint does: one function for the gradients of input and weight.
struct recomputed : ag::Function<recomputed> {
  static at::Tensor compute(at::Tensor const& x, at::Tensor const& w) { return at::tanh(x.mm(w)) * x; }
  static at::Tensor forward(ag::AutogradContext* context, at::Tensor const& x, at::Tensor const& w) {
    context->save_for_backward({x, w});
    at::NoGradGuard const no_graph;
    return compute(x, w);
  }
  static ag::variable_list backward(ag::AutogradContext* context, ag::variable_list const& gradients) {
    auto const saved = context->get_saved_variables();
    at::AutoGradMode const with_graph(true);
    auto const x = saved[0].detach().set_requires_grad(true), w = saved[1].detach().set_requires_grad(true);
    return ag::grad({compute(x, w)}, {x, w}, {gradients[0]});
  }
};

node_under_test const several_outputs{one_weight, rows_of_8, [](parameters& w, tensors const& x) {
                                        auto const halves = x[0].mm(w[0].value()).chunk(2, 1);
                                        return tensors{at::sigmoid(halves[0]) * halves[1], halves[1] + 1};
                                      }};
node_under_test const weight_squared{one_weight, rows_of_8, [](parameters& w, tensors const& x) {
                                       return tensors{x[0] * w[0].value()[0] * w[0].value()[0]};
                                     }};
node_under_test const checkpointed{one_weight, rows_of_8, [](parameters& w, tensors const& x) {
                                     return tensors{recomputed::apply(x[0] + 1, w[0].value()) +
                                                    st::linear(x[0], w[0])};
                                   }};

} // namespace

TEST_CASE("halves of a backward through several outputs, a weight used twice and a checkpoint",
          "[megatron-35][pipelines-12]") {
  st::use_one_thread();
  auto const* node = GENERATE(&several_outputs, &weight_squared, &checkpointed);
  auto const ordinary = gradients_of(*node, at::kDouble, way::ordinary);
  CHECK(ordinary.of_weights[0].abs().max().item<double>() > 0);
  for (auto const how : {way::whole, way::split, way::split_late}) {
    CAPTURE(static_cast<int>(how));
    auto const found = gradients_of(*node, at::kDouble, how);
    // A function of its own adds its weight gradient before those of ordinary operations.
    CHECK(at::allclose(found.of_weights[0], ordinary.of_weights[0], 1e-12, 1e-12));
    for (std::size_t i = 0; i < ordinary.of_inputs.size(); ++i)
      CHECK(same_bits(found.of_inputs[i], ordinary.of_inputs[i]));
  }
}

TEST_CASE("a receive buffer that is used again gathers no hooks, gradients or references",
          "[megatron-35][pipelines-20]") {
  st::use_one_thread();
  st::tensors adapter;
  auto weights = one_weight(at::kDouble);
  at::Tensor buffer = random_tensor({4, 8}, at::kDouble, 2);
  auto const storage_uses = buffer.storage().use_count();
  for (int step = 0; step < 3; ++step) {
    CAPTURE(step);
    buffer.copy_(random_tensor({4, 8}, at::kDouble, 10 + static_cast<std::uint64_t>(step)));
    {
      st::tensors::context context;
      at::Tensor leaf = adapter.detach(buffer), root, gradient, ones = at::ones({4, 8}, at::kDouble);
      {
        auto const scope = adapter.forward_scope(context);
        root = at::tanh(leaf.mm(weights[0].value())) + st::linear(leaf, weights[0]);
      }
      adapter.backward_input(context, {&root, &ones, nullptr, 1, &leaf, &gradient, 1});
      adapter.backward_weight(context);
      CHECK(gradient.defined());
      CHECK(ag::impl::hooks(leaf).empty());
      CHECK_FALSE(leaf.grad().defined());
    }
    // Nothing of autograd at all.
    CHECK(ag::impl::get_autograd_meta(buffer) == nullptr);
    CHECK(buffer.use_count() == 1);
    CHECK(buffer.storage().use_count() == storage_uses);
    CHECK(ag::impl::hooks(weights[0].leaf()).empty());
  }
}

TEST_CASE("a deferred weight gradient builds no graph and lets go of what it was made from", "[h200-04]") {
  st::use_one_thread();
  REQUIRE(c10::GradMode::is_enabled());
  st::tensors adapter;
  auto weights = one_weight(at::kDouble);
  st::parameter other("other", random_tensor({8, 8}, at::kDouble, 3));
  at::Tensor root_of_writer = random_tensor({4, 8}, at::kDouble, 2);
  auto const storage_uses = root_of_writer.storage().use_count();
  for (int microbatch = 0; microbatch < 3; ++microbatch) {
    st::tensors::context context;
    {
      at::Tensor leaf = adapter.detach(root_of_writer), root, gradient, ones = at::ones({4, 8}, at::kDouble);
      {
        auto const scope = adapter.forward_scope(context);
        root = st::linear(leaf, weights[0]) + leaf.mm(other.value());
      }
      adapter.backward_input(context, {&root, &ones, nullptr, 1, &leaf, &gradient, 1});
    }
    CHECK(root_of_writer.storage().use_count() > storage_uses);
    adapter.backward_weight(context);
    CHECK(root_of_writer.storage().use_count() == storage_uses);
    for (auto const* each : {&weights[0], &other}) {
      CHECK_FALSE(each->main_grad().requires_grad());
      CHECK_FALSE(each->main_grad().grad_fn());
      CHECK(each->main_grad().abs().max().item<double>() > 0);
    }
  }
}
