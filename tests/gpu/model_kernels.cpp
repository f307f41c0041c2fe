#include "../torch/bits.hpp"

#include <train_moe/gpu/gpu_attention.hpp>
#include <train_moe/gpu/use_kernels.hpp>
#include <train_moe/model/attend.hpp>
#include <train_moe/model/chosen_rows.hpp>
#include <train_moe/model/rope.hpp>
#include <train_moe/model/swiglu.hpp>

#include <stretto/adapters/torch/device_order.hpp>
#include <stretto/adapters/torch/rms_norm.hpp>
#include <stretto/adapters/torch_cuda.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <torch/csrc/autograd/autograd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

using namespace train_moe;
using tensors = std::vector<at::Tensor>;
using differentiable = std::function<tensors(tensors const&)>;

namespace {

void start() {
  stretto::torch_cuda::make_repeatable();
  use_kernels();
  use_gpu_attention(attention_sums::repeatable);
}

struct results {
  tensors outputs, gradients;
};
/// Of random gradients of the outputs, the same everywhere.
results differentiate(differentiable const& of, tensors const& inputs, at::TensorOptions const& where) {
  tensors leaves, gradients;
  for (auto const& each : inputs) leaves.push_back(each.to(where).detach().set_requires_grad(true));
  auto const outputs = of(leaves);
  std::uint64_t seed = 1000;
  for (auto const& each : outputs)
    gradients.push_back(random_tensor(each.sizes(), at::kDouble, ++seed).to(at::kBFloat16).to(where));
  return {outputs, ::torch::autograd::grad(outputs, leaves, gradients)};
}

double distance(at::Tensor const& a, at::Tensor const& exact) {
  auto const wide = a.detach().to(at::kCPU, at::kDouble);
  return ((wide - exact).norm() / exact.norm()).item<double>();
}
void check_near(tensors const& a, tensors const& exact, double rounding) {
  REQUIRE(a.size() == exact.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(i);
    REQUIRE(a[i].sizes() == exact[i].sizes());
    CHECK(distance(a[i], exact[i]) < rounding);
  }
}
/// `of` on the GPU, in the type of the kernels, is near `of` in double precision on the CPU, and the same twice.
void check_against_cpu(differentiable const& of, tensors const& inputs, at::ScalarType type) {
  auto const gpu = at::TensorOptions(at::kCUDA).dtype(type);
  auto const ours = differentiate(of, inputs, gpu), again = differentiate(of, inputs, gpu);
  auto const exact = differentiate(of, inputs, at::TensorOptions(at::kCPU).dtype(at::kDouble));
  auto const rounding = type == at::kBFloat16 ? 2e-2 : 1e-5;
  check_near(ours.outputs, exact.outputs, rounding);
  check_near(ours.gradients, exact.gradients, rounding);
  for (std::size_t i = 0; i < ours.gradients.size(); ++i)
    CHECK(same_bits(ours.gradients[i].cpu(), again.gradients[i].cpu()));
}

/// Numbers that all types have.
at::Tensor some(at::IntArrayRef sizes, std::uint64_t seed) {
  return random_tensor(sizes, at::kDouble, seed).to(at::kBFloat16).to(at::kDouble);
}

} // namespace

TEST_CASE("the model's kernels compute what torch's operations do on the CPU", "[gpu]") {
  start();
  auto const type = GENERATE(at::kFloat, at::kBFloat16);
  // Widths with and without kernels, and rows of more than one block.
  auto const width = GENERATE(16, 4104, 6);
  CAPTURE(type, width);
  SECTION("swiglu") {
    auto const both = some({37, 2 * width}, 1), dy = some({37, width}, 2);
    auto const rounding = type == at::kBFloat16 ? 2e-2 : 1e-5;
    bool const along = GENERATE(false, true);
    auto const exact = swiglu_backward(both, dy, along);
    check_near({swiglu(both.to(at::kCUDA, type))}, {swiglu(both)}, rounding);
    auto const there = [&] {
      return swiglu_backward(both.to(at::kCUDA, type), dy.to(at::kCUDA, type), along);
    };
    auto const made = there();
    check_near({made.d_both, made.y}, {exact.d_both, exact.y}, rounding);
    REQUIRE(made.along.defined() == along);
    if (along) {
      CHECK(made.along.scalar_type() == at::kFloat);
      check_near({made.along}, {exact.along}, rounding);
      CHECK(same_bits(made.along.cpu(), there().along.cpu()));
      auto const none = swiglu_backward(both.narrow(0, 0, 0).to(at::kCUDA, type),
                                        dy.narrow(0, 0, 0).to(at::kCUDA, type), true);
      CHECK(none.along.sizes() == at::IntArrayRef{0, 1});
    }
    CHECK(same_bits(made.y.cpu(), swiglu(both.to(at::kCUDA, type)).cpu()));
  }
  SECTION("rows that are chosen") {
    int const choices = GENERATE(1, 3);
    bool const placed = GENERATE(true, false);
    auto const weights = some({37, choices}, 2);
    auto const order = at::randperm(37 * choices, at::detail::createCPUGenerator(7), at::kLong);
    auto const chosen = [&](tensors const& x) {
      auto const there = order.to(x[0].device()), place = there.argsort();
      auto const spread = spread_rows(x[0], there, place, choices);
      auto const by = weights.to(x[0].device(), wide_type(x[0].scalar_type()));
      auto const rows = spread.mul(0.5);
      return tensors{placed ? weigh_rows(x[0], rows, by, there, place) : weigh_rows(x[0], rows, by), spread};
    };
    check_against_cpu(chosen, {some({37, width}, 1)}, type);
  }
}

TEST_CASE("what a gradient was written over is not differentiated again", "[gpu]") {
  start();
  auto const x = some({37, 32}, 1).to(at::kCUDA, at::kFloat).set_requires_grad(true);
  stretto::torch::parameter weight("w", some({16, 8}, 2).to(at::kCUDA, at::kFloat));
  auto const both = x.mul(0.5);
  auto const y = stretto::torch::apply_weighted(after_swiglu<stretto::torch::linear_op>{}, both, weight);
  auto const gradients = [&] {
    return ::torch::autograd::grad({y}, {both, weight.leaf()}, {at::ones_like(y)}, /*retain_graph=*/true);
  };
  auto const expected = at::matmul(swiglu(both.detach()).t(), at::ones_like(y));
  auto const first = gradients();
  CHECK(first[0].data_ptr() == both.data_ptr());
  CHECK(distance(first[1], expected.to(at::kCPU, at::kDouble)) < 1e-5);
  CHECK_THROWS_WITH(gradients(), Catch::Matchers::ContainsSubstring("modified by an inplace operation"));
}

TEST_CASE("norms on the GPU are those of the CPU", "[gpu]") {
  start();
  auto const type = GENERATE(at::kFloat, at::kBFloat16);
  auto const width = GENERATE(16, 4104, 6);
  CAPTURE(type, width);
  auto const gain = some({width}, 1), x = some({37, width}, 2), dy = some({37, width}, 3);
  auto const norm = [&](at::TensorOptions const& where) {
    stretto::torch::parameter weight("gain", gain.to(where));
    auto const leaf = x.to(where).detach().set_requires_grad(true);
    auto const y = stretto::torch::rms_norm(leaf, weight);
    auto const made = ::torch::autograd::grad({y}, {leaf, weight.leaf()}, {dy.to(where)});
    return tensors{y, made[0], made[1]};
  };
  auto const exact = norm(at::TensorOptions(at::kCPU).dtype(at::kDouble));
  auto const gpu = at::TensorOptions(at::kCUDA).dtype(type);
  auto const ours = norm(gpu), again = norm(gpu);
  check_near(ours, exact, type == at::kBFloat16 ? 1e-2 : 1e-5);
  for (std::size_t i = 0; i < ours.size(); ++i) CHECK(same_bits(ours[i].cpu(), again[i].cpu()));
}

TEST_CASE("queries and keys are turned on the GPU as on the CPU", "[gpu]") {
  start();
  auto const type = GENERATE(at::kFloat, at::kBFloat16);
  auto const head = GENERATE(16, 128, 12);
  CAPTURE(type, head);
  auto const turned = [&](tensors const& x) {
    rotation const by(5, head, x[0].options().requires_grad(false));
    auto const parts = rotate(x[0].view({2, 5, 3, 3, head}), by);
    return tensors{parts[0], parts[1], parts[2]};
  };
  check_against_cpu(turned, {some({10, 9 * head}, 1)}, type);
}

TEST_CASE("choices are grouped on the GPU as on the CPU", "[gpu]") {
  start();
  int const experts = GENERATE(1, 3, 64), tokens = GENERATE(1, 300, 5000);
  CAPTURE(experts, tokens);
  auto const ids = at::randint(experts, {tokens, 2}, at::detail::createCPUGenerator(3), at::kLong);
  REQUIRE(gpu_operations());
  auto const ours = gpu_operations()->group(ids.cuda(), experts);
  auto const exact = stretto::torch::order_by_expert(ids, experts);
  CHECK(ours.order.cpu().equal(exact.order));
  CHECK(ours.inverse.cpu().equal(exact.inverse));
  CHECK(ours.rows.cpu().equal(at::bincount(ids.flatten(), {}, experts)));
}

TEST_CASE("a kernel of the model is not blamed for an error that another call has left", "[gpu]") {
  start();
  REQUIRE(gpu_operations());
  auto const ids = at::zeros({5, 1}, at::kLong).cuda();
  // Memory is there then, and the kernel is loaded.
  static_cast<void>(gpu_operations()->group(ids, 1));
  CHECK(cudaSetDevice(-1) == cudaErrorInvalidDevice);
  CHECK_NOTHROW(gpu_operations()->group(ids, 1));
  CHECK(cudaGetLastError() == cudaErrorInvalidDevice);
}

TEST_CASE("attention of long sequences", "[gpu]") {
  start();
  auto const head = GENERATE(64, 128);
  auto const attended = [](tensors const& x) {
    // As the model has them: heads of a token side by side.
    return tensors{attend(x[0].transpose(1, 2), x[1].transpose(1, 2), x[2].transpose(1, 2))};
  };
  auto const part = [&](std::uint64_t seed) { return some({2, 1024, 2, head}, seed); };
  tensors const inputs{part(1), part(2), part(3)};
  REQUIRE(gpu_attention());
  auto const on_gpu = inputs[0].to(at::kCUDA, at::kBFloat16).transpose(1, 2);
  if (!gpu_attention()->serves(on_gpu)) SKIP("needs cuDNN and a GPU of compute capability 9");
  check_against_cpu(attended, inputs, at::kBFloat16);
  use_gpu_attention(attention_sums::any_order);
  auto const exact = differentiate(attended, inputs, at::TensorOptions(at::kCPU).dtype(at::kDouble));
  auto const fast = differentiate(attended, inputs, at::TensorOptions(at::kCUDA).dtype(at::kBFloat16));
  check_near(fast.outputs, exact.outputs, 2e-2);
  check_near(fast.gradients, exact.gradients, 2e-2);
}
