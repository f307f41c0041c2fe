#include "../torch/bits.hpp"
#include "../torch/node_ways.hpp"

#include <stretto/adapters/cublas.hpp>
#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/torch_cuda.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

namespace st = stretto::torch;
namespace cuda = stretto::cuda;
using parameters = node_under_test::parameters;
using tensors = std::vector<at::Tensor>;
using products = stretto::torch_cuda::expert_products_op<stretto::cublas::stream_handles>;
static_assert(st::weighted_op<products> && st::accumulating_op<products>);

namespace {

std::vector<std::int64_t> const rows{0, 700, 0, 1, 299};

products by_cublas() {
  thread_local stretto::cublas::stream_handles handles;
  return {rows, &handles};
}

parameters weights_on(at::Device where, at::ScalarType type) {
  parameters made;
  made.emplace_back("up", random_tensor({5, 40, 96}, type, 3).to(where));
  made.emplace_back("down", random_tensor({5, 96, 40}, type, 4).to(where));
  return made;
}
tensors rows_on(at::Device where, at::ScalarType type, int m) {
  return {random_tensor({1000, 40}, type, 100 + static_cast<std::uint64_t>(m)).to(where)};
}
/// Experts of two products.
template <class Linear> tensors experts(Linear const& linear, parameters& w, at::Tensor const& x) {
  return {linear(at::silu(linear(x, w[0])), w[1])};
}

node_under_test const on_gpu{[](at::ScalarType type) { return weights_on(at::kCUDA, type); },
                             [](at::ScalarType type, int m) { return rows_on(at::kCUDA, type, m); },
                             [](parameters& w, tensors const& x) {
                               auto const linear = [](at::Tensor const& t, st::parameter& p) {
                                 return st::expert_linear(t, by_cublas(), p);
                               };
                               return experts(linear, w, x[0]);
                             }};
/// Of the same numbers, in double precision.
at::ScalarType exact_type = at::kFloat;
node_under_test const exact{
    [](at::ScalarType) {
      parameters made;
      for (auto const& each : weights_on(at::kCPU, exact_type))
        made.emplace_back(each.name(), each.data().to(at::kDouble));
      return made;
    },
    [](at::ScalarType, int m) { return tensors{rows_on(at::kCPU, exact_type, m)[0].to(at::kDouble)}; },
    [](parameters& w, tensors const& x) {
      auto const linear = [](at::Tensor const& t, st::parameter& p) { return st::expert_linear(t, rows, p); };
      return experts(linear, w, x[0]);
    }};

double apart(at::Tensor const& found, at::Tensor const& expected) {
  return ((found.cpu().to(at::kDouble) - expected).norm() / expected.norm()).item<double>();
}

} // namespace

TEST_CASE("experts by cuBLAS under autograd: right to rounding, the same bits in every way to run backward",
          "[gpu]") {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  auto const type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  CAPTURE(type);
  cuda::stream own;
  auto const current = stretto::torch_cuda::current_stream{}.enter(own.get());
  auto const found = gradients_of(on_gpu, type, way::ordinary);
  cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  exact_type = type;
  auto const expected = gradients_of(exact, at::kDouble, way::ordinary);
  auto const rounding = type == at::kBFloat16 ? 1e-2 : type == at::kFloat ? 1e-5 : 1e-13;
  for (std::size_t i = 0; i < found.of_inputs.size(); ++i)
    CHECK(apart(found.of_inputs[i], expected.of_inputs[i]) < rounding);
  for (std::size_t i = 0; i < found.of_weights.size(); ++i) {
    CHECK(found.of_weights[i].scalar_type() == (type == at::kDouble ? at::kDouble : at::kFloat));
    CHECK(apart(found.of_weights[i], expected.of_weights[i]) < rounding);
  }
  for (auto const how : {way::whole, way::split, way::split_late}) {
    CAPTURE(static_cast<int>(how));
    auto const again = gradients_of(on_gpu, type, how);
    for (std::size_t i = 0; i < found.of_inputs.size(); ++i)
      CHECK(same_bits(again.of_inputs[i].cpu(), found.of_inputs[i].cpu()));
    for (std::size_t i = 0; i < found.of_weights.size(); ++i)
      CHECK(same_bits(again.of_weights[i].cpu(), found.of_weights[i].cpu()));
  }
}

TEST_CASE("experts by cuBLAS refuse what is not on the GPU or of another type", "[gpu]") {
  auto w = weights_on(at::kCUDA, at::kBFloat16);
  CHECK_THROWS_WITH(st::expert_linear(rows_on(at::kCUDA, at::kFloat, 0)[0], by_cublas(), w[0]),
                    Catch::Matchers::ContainsSubstring("Float on cuda:0 and BFloat16 on cuda:0"));
  CHECK_THROWS_WITH(st::expert_linear(rows_on(at::kCPU, at::kBFloat16, 0)[0], by_cublas(), w[0]),
                    Catch::Matchers::ContainsSubstring("BFloat16 on cpu"));
}
