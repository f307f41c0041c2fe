// What it costs to know a whole step before it runs: lowering a plan to tables of ops, checking them, planning releases.
#include "../../examples/plan/layer_types.hpp"

#include <stretto/pipelines/dual_pipe_v.hpp>
#include <stretto/plan/error.hpp>
#include <stretto/simulate/ops.hpp>

#include <benchmark/benchmark.h>

#include <vector>

namespace {

using namespace stretto;

struct Step : Schedule<plan_program::MoeModel, TwoStream1F1B, SplitDW, DualPipeV> {};

constexpr int ranks = 8, microbatches = 32, layers = 4;

layer_shape shape_of(plan_facts const& facts, int rank) {
  std::vector<std::vector<int>> chunks(2, std::vector<int>(layers, 0));
  if (facts.stage(rank, 0) == 0) chunks[0].front() = 1;
  if (facts.stage(rank, 1) == facts.stages() - 1) chunks[1].back() = 2;
  return layer_shape(chunks);
}

std::vector<flat_table> lower_all(plan const& all, plan_steps const& lists) {
  std::vector<flat_table> tables;
  for (int rank = 0; rank < ranks; ++rank)
    tables.push_back(lower_rank<Step>(all, lists, rank, shape_of(all.facts(), rank)));
  return tables;
}

void plan_and_messages(benchmark::State& state) {
  for (auto _ : state) {
    plan const all = proved_plan<DualPipeV>(ranks, microbatches);
    plan_steps const lists = lower_messages(all);
    benchmark::DoNotOptimize(lists.size(0));
  }
}

void lowering(benchmark::State& state) {
  plan const all = proved_plan<DualPipeV>(ranks, microbatches);
  plan_steps const lists = lower_messages(all);
  double rows = 0;
  for (auto _ : state) {
    auto const tables = lower_all(all, lists);
    rows = 0;
    for (flat_table const& table : tables) rows += static_cast<double>(table.ops.size());
    benchmark::DoNotOptimize(rows);
  }
  state.counters["rows"] = rows;
}

void checking(benchmark::State& state) {
  plan const all = proved_plan<DualPipeV>(ranks, microbatches);
  auto const tables = lower_all(all, lower_messages(all));
  for (auto _ : state) {
    for (flat_table const& table : tables)
      if (table.check()) state.SkipWithError("a table is not legal");
  }
}

void planning_releases(benchmark::State& state) {
  plan const all = proved_plan<DualPipeV>(ranks, microbatches);
  auto const tables = lower_all(all, lower_messages(all));
  double count = 0;
  for (auto _ : state) {
    count = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      layer_shape const shape = shape_of(all.facts(), rank);
      detail::chain_layout const layout(all.facts(), rank, shape);
      count += static_cast<double>(
          detail::plan_releases<Step>(tables[static_cast<std::size_t>(rank)], layout, shape).size());
    }
  }
  state.counters["releases"] = count;
}

void simulating(benchmark::State& state) {
  plan const all = proved_plan<DualPipeV>(ranks, microbatches);
  auto const tables = lower_all(all, lower_messages(all));
  for (auto _ : state)
    benchmark::DoNotOptimize(simulate_ops(all.facts(), tables, [](int, op const&) { return 1.0; }));
}

BENCHMARK(plan_and_messages)->Unit(benchmark::kMillisecond);
BENCHMARK(lowering)->Unit(benchmark::kMillisecond);
BENCHMARK(checking)->Unit(benchmark::kMillisecond);
BENCHMARK(planning_releases)->Unit(benchmark::kMillisecond);
BENCHMARK(simulating)->Unit(benchmark::kMillisecond);

} // namespace

BENCHMARK_MAIN();
