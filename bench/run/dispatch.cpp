#include "steps.hpp"

#include <stretto/adapters/host/lanes.hpp>

#include <benchmark/benchmark.h>

namespace {

namespace st = stretto;

template <class Way> void step(benchmark::State& state) {
  int const microbatches = 8;
  Way run(static_cast<int>(state.range(0)), microbatches);
  std::size_t const ops =
      steps::by_executor(static_cast<int>(state.range(0)), microbatches).table().ops.size();
  for (auto _ : state) run();
  // Of processor time, which other work on the machine disturbs less.
  state.counters["per op"] =
      benchmark::Counter(static_cast<double>(ops) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK(step<steps::by_hand>)->RangeMultiplier(4)->Range(1, 64);
BENCHMARK(step<steps::by_executor>)->RangeMultiplier(4)->Range(1, 64);
BENCHMARK(step<steps::by_table>)->RangeMultiplier(4)->Range(1, 64);
BENCHMARK(step<steps::by_functions>)->RangeMultiplier(4)->Range(1, 64);
// Every op goes to one of two worker threads and waits for those of the other, as with libraries that schedule tasks. The
// time is that of all threads.
BENCHMARK(step<steps::by_executor_over<st::host::lanes>>)
    ->RangeMultiplier(4)
    ->Range(1, 64)
    ->MeasureProcessCPUTime();

} // namespace

BENCHMARK_MAIN();
