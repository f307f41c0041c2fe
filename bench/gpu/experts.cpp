/// The products of experts on one GPU: a loop over the experts by cuBLAS and by torch, beside one dense product of as many
/// operations, one after the other in every repeat. Prints JSON. Arguments: NAME=NUMBER.

#include "program.hpp"
#include "spread.hpp"

#include <stretto/adapters/cublas.hpp>
#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/torch/expert_linear.hpp>
#include <stretto/adapters/torch_cuda.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

namespace {

namespace cuda = stretto::cuda;
namespace cublas = stretto::cublas;
using bench::quantile;
using row_counts = std::vector<std::int64_t>;

bench::settings setting{{"repeats", 25}, {"warm_up", 3}, {"sets", 3}, {"experts", 8}};

/// One set of buffers. Several are used in turn, so that nothing is found in the cache.
struct buffers {
  at::Tensor x, w, y, dy, dx, dw, dense_dw, torch_dw;

  buffers(std::int64_t rows, std::int64_t experts, std::int64_t in, std::int64_t out) {
    auto const bf16 = at::TensorOptions(at::kCUDA).dtype(at::kBFloat16);
    x = at::randn({rows, in}, bf16);
    w = at::randn({experts, in, out}, bf16);
    y = at::empty({rows, out}, bf16);
    dy = at::randn({rows, out}, bf16);
    dx = at::empty({rows, in}, bf16);
    dw = at::zeros({experts, in, out}, bf16.dtype(at::kFloat));
    torch_dw = at::zeros_like(dw);
    dense_dw = at::zeros({1, in, out}, dw.options());
  }
};

enum product { forward, input_gradient, weight_gradient, products };
constexpr char const* product_names[] = {"forward", "input_gradient", "weight_gradient_fp32_added"};
enum variant { by_cublas, by_torch, dense, variants };
constexpr char const* variant_names[] = {"cublas_loop", "torch_loop", "one_dense_product"};

void by_handle(cublas::handle& with, product what, std::int64_t in, std::int64_t out, row_counts const& rows,
               buffers const& b, at::Tensor const& dw) {
  cublas::expert_shape const shape{CUDA_R_16BF, in, out};
  switch (what) {
  case forward:
    return cublas::expert_forward(with, shape, rows, b.x.data_ptr(), b.w.data_ptr(), b.y.data_ptr());
  case input_gradient:
    return cublas::expert_input_gradient(with, shape, rows, b.dy.data_ptr(), b.w.data_ptr(), b.dx.data_ptr());
  default:
    return cublas::expert_weight_gradient(with, shape, rows, b.x.data_ptr(), b.dy.data_ptr(), dw.data_ptr(),
                                          cublas::gradient_sum::add);
  }
}

/// What the loop of the torch adapter makes; weight gradients are added to a float tensor as by its parameters.
at::Tensor by_torch_adapter(product what, row_counts const& rows, buffers const& b) {
  stretto::torch::expert_linear_op const op{rows};
  switch (what) {
  case forward:
    return op.output(b.x, b.w);
  case input_gradient:
    return op.input_gradient(b.dy, b.w);
  default:
    return b.torch_dw.add_(op.weight_gradient(b.x, b.dy, b.w));
  }
}

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
/// How far two tensors are apart, relative to the second.
double difference(at::Tensor const& a, at::Tensor const& b) {
  auto const wide = b.to(at::kFloat);
  return (a.to(at::kFloat).sub(wide).norm() / wide.norm()).item<double>();
}

/// `split`: the share of each expert in eighths of a fair one, in turn.
void measure(cublas::handle& with, char const* name, std::int64_t in, std::int64_t out, std::int64_t tokens,
             std::vector<int> const& split, char const*& comma) {
  auto const experts = static_cast<std::size_t>(setting["experts"]);
  row_counts rows(experts);
  std::int64_t all = 0;
  for (std::size_t e = 0; e < experts; ++e) all += rows[e] = tokens * split[e % split.size()] / 8;
  row_counts const together{all};
  std::vector<buffers> sets;
  for (int i = 0; i < setting["sets"]; ++i) sets.emplace_back(all, setting["experts"], in, out);
  // Runs while the host issues what is measured, and empties the cache.
  auto const lead = at::empty({std::int64_t{1} << 30}, at::TensorOptions(at::kCUDA).dtype(at::kByte));

  for (auto const what : {forward, input_gradient, weight_gradient}) {
    std::vector<double> us[variants], host_us[variants];
    cuda::time_mark start, end;
    std::size_t turn = 0;
    double apart = 0;
    for (int repeat = -setting["warm_up"]; repeat < setting["repeats"]; ++repeat) {
      auto const& b = sets[turn++ % sets.size()];
      at::Tensor made;
      for (int which = 0; which < variants; ++which) {
        cuda::check(cudaMemsetAsync(lead.data_ptr(), repeat & 0xff, static_cast<std::size_t>(lead.numel()),
                                    with.stream()),
                    "cudaMemsetAsync");
        start.record(with.stream());
        auto const before = now_us();
        if (which == by_torch)
          made = by_torch_adapter(what, rows, b);
        else
          by_handle(with, what, in, out, which == dense ? together : rows, b,
                    which == dense ? b.dense_dw : b.dw);
        auto const issued = now_us();
        end.record(with.stream());
        end.synchronize();
        if (repeat >= 0) {
          us[which].push_back(cuda::microseconds_between(start, end));
          host_us[which].push_back(issued - before);
        }
        // The dense product writes over what the loop wrote.
        if (which == by_torch)
          apart = std::max(apart, difference(what == forward          ? b.y
                                             : what == input_gradient ? b.dx
                                                                      : b.dw,
                                             made));
      }
    }
    double const operations =
        2.0 * static_cast<double>(all) * static_cast<double>(in) * static_cast<double>(out);
    std::printf("%s  {\"shape\": \"%s\", \"in\": %ld, \"out\": %ld, \"rows\": %ld, "
                "\"most_rows_of_an_expert\": %ld, \"product\": \"%s\"",
                comma, name, static_cast<long>(in), static_cast<long>(out), static_cast<long>(all),
                static_cast<long>(*std::max_element(rows.begin(), rows.end())), product_names[what]);
    comma = ",\n";
    for (int which = 0; which < variants; ++which) {
      double const median = quantile(us[which], 0.5);
      std::printf(
          ", \"%s\": {\"us\": %.1f, \"p10\": %.1f, \"p90\": %.1f, \"tflops\": %.1f, \"host_us\": %.1f}",
          variant_names[which], median, quantile(us[which], 0.1), quantile(us[which], 0.9),
          operations / median * 1e-6, quantile(host_us[which], 0.5));
    }
    std::printf(", \"of_dense\": %.3f, \"torch_of_dense\": %.3f, \"apart_from_torch\": %.2g}",
                quantile(us[dense], 0.5) / quantile(us[by_cublas], 0.5),
                quantile(us[dense], 0.5) / quantile(us[by_torch], 0.5), apart);
    std::fflush(stdout);
  }
}

int cublas_version() {
  int parts[3] = {};
  for (auto const which : {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL})
    static_cast<void>(cublasGetProperty(which, &parts[which]));
  return 10000 * parts[0] + 100 * parts[1] + parts[2];
}

void run() {
  at::NoGradGuard const no_graph;
  cuda::stream own;
  auto const current = stretto::torch_cuda::current_stream{}.enter(own.get());
  cublas::handle with(own.get());
  char const* comma = "\n";
  std::printf("{\"repeats\": %d, \"experts\": %d, \"cublas\": %d, \"products\": [", setting["repeats"],
              setting["experts"], cublas_version());
  measure(with, "square", 4096, 4096, 4096, {8}, comma);
  measure(with, "deepseek_up", 7168, 4096, 4096, {8}, comma);
  measure(with, "deepseek_down", 2048, 7168, 4096, {8}, comma);
  measure(with, "square", 4096, 4096, 512, {8}, comma);
  measure(with, "deepseek_down", 2048, 7168, 512, {8}, comma);
  measure(with, "square_uneven", 4096, 4096, 4096, {16, 0, 12, 4, 10, 6, 15, 1}, comma);
  std::printf("\n]}\n");
}

} // namespace

int main(int argc, char** argv) { return bench::run_on_gpu(setting, argc, argv, run); }
