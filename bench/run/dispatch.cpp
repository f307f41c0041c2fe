#include "steps.hpp"

#include <benchmark/benchmark.h>

namespace {

template <class Way> void step(benchmark::State& state) {
  int const microbatches = 8;
  Way run(static_cast<int>(state.range(0)), microbatches);
  std::size_t const ops = steps::by_executor(static_cast<int>(state.range(0)), microbatches).table().ops.size();
  for (auto _ : state) run();
  state.counters["ns/op"] = benchmark::Counter(static_cast<double>(ops) * static_cast<double>(state.iterations()) * 1e-9,
                                               benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK(step<steps::by_hand>)->RangeMultiplier(4)->Range(1, 64);
BENCHMARK(step<steps::by_executor>)->RangeMultiplier(4)->Range(1, 64);
BENCHMARK(step<steps::by_table>)->RangeMultiplier(4)->Range(1, 64);
BENCHMARK(step<steps::by_functions>)->RangeMultiplier(4)->Range(1, 64);

}  // namespace

BENCHMARK_MAIN();
