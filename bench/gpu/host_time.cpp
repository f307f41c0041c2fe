/// Host time of the executor for a layer pair: a forward and a backward of one layer with its events, phases that do nothing.
/// Built twice: with CUDA, and with `empty_cuda.cpp` in its place, so that only our own code and the calls remain.
#include "../run/steps.hpp"
#include "spread.hpp"

#include <stretto/adapters/cuda/lanes.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

namespace cuda = stretto::cuda;
constexpr int microbatches = 8;

/// Microseconds a layer and microbatch: median, tenth and ninetieth percentile over the repeats.
template <class Step> void measure(char const* name, int layers, int repeats) {
  Step step(layers, microbatches);
  for (int i = 0; i < repeats / 4 + 1; ++i) step();
  std::vector<double> us;
  for (int i = 0; i < repeats; ++i) {
    auto const start = std::chrono::steady_clock::now();
    step();
    us.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() /
                 (layers * microbatches));
  }
  auto const found = bench::spread_of(us);
  auto const& table = step.table();
  int ops = 0;
  for (auto const& each : table.ops) ops += each.layer > 0 && each.layer <= layers;
  std::printf("%-28s %6d %9.1f %9.3f %9.3f %9.3f\n", name, layers,
              ops / static_cast<double>(layers * microbatches), found.median, found.p10, found.p90);
  std::fflush(stdout);
}

} // namespace

int main(int count, char** arguments) {
  int const repeats = count > 1 ? std::atoi(arguments[1]) : 200;
  if (repeats < 1) {
    std::fprintf(stderr, "usage: host_time [REPEATS], a number above 0, and got '%s'\n", arguments[1]);
    return 2;
  }
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::printf("skipped: needs a GPU\n");
    return 77;
  }
  std::printf("host us for a layer pair (%d microbatches, %d steps)\n%-28s %6s %9s %9s %9s %9s\n",
              microbatches, repeats, "lanes", "layers", "ops/pair", "median", "p10", "p90");
  for (int const layers : {4, 16, 64}) {
    measure<steps::by_executor>("calls that return", layers, repeats);
    measure<steps::by_executor_over<cuda::lanes<>>>("cuda::lanes", layers, repeats);
  }
  return 0;
}
