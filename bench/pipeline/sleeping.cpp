// sleeping: steps of every pipeline over ranks that are threads, with phases that sleep their modelled cost, beside what the
// replay of the same plan predicts. Threads that sleep need no core, so that more ranks fit on a machine than it has cores.
#include "plan/costs.hpp"
#include "plan/layer_types.hpp"
#include "plan/programs.hpp"

#include <stretto/adapters/host.hpp>
#include <stretto/adapters/null.hpp>
#include <stretto/executor.hpp>
#include <stretto/pipelines/all.hpp>
#include <stretto/plan/error.hpp>

#include <algorithm>
#include <cstdio>
#include <vector>

#include <CLI/CLI.hpp>

namespace {

namespace st = stretto;
namespace host = stretto::host;

/// In milliseconds, as published.
plan_program::layer_costs const* costs = nullptr;

void sleep_for_ms(double milliseconds) {
  host::sleep_precisely_until(host::clock::now() + host::duration_of_us(1000 * milliseconds));
}

using cost = double plan_program::layer_costs::phases::*;
using phases = plan_program::layer_costs::phases;

template <cost Of> struct Sleeps {
  void forward(auto&) { sleep_for_ms(costs->forward.*Of); }
};
template <cost Of> struct SleepsInHalves : Sleeps<Of> {
  void backward_input(auto&) { sleep_for_ms(costs->input.*Of); }
  void backward_weight(auto&) { sleep_for_ms(costs->weight.*Of); }
};
template <cost Of> struct SleepsAtOnce : Sleeps<Of> {
  void backward(auto&) { sleep_for_ms(costs->input.*Of); }
};

// The phases of the replay, with work.
struct Attention : plan_program::Attention, SleepsInHalves<&phases::attn> {};
struct FirstAttention : plan_program::FirstAttention, SleepsInHalves<&phases::attn> {};
struct Dispatch : plan_program::Dispatch, SleepsAtOnce<&phases::dispatch> {};
struct Experts : plan_program::Experts, SleepsInHalves<&phases::mlp> {};
struct Combine : plan_program::Combine, SleepsAtOnce<&phases::combine> {};
struct LastCombine : plan_program::LastCombine, SleepsAtOnce<&phases::combine> {};

template <class Begin, class End>
using moe_block = st::Block<Begin, st::Detach, Dispatch, st::Detach, Experts, st::Detach, End>;
struct MoeLayer : moe_block<Attention, Combine> {};
struct FirstLayer : moe_block<FirstAttention, Combine> {};
struct LastLayer : moe_block<Attention, LastCombine> {};
struct Model : st::Blocks<MoeLayer, FirstLayer, LastLayer> {};
/// Bodies for pairs and for halves: what the plan of any pipeline asks for.
struct Step : st::Schedule<Model, st::TwoStream1F1B, st::SplitDW, st::DualPipeV> {};

void add_layers(st::layer_list<Model>& to, st::plan_facts const& facts, int rank, int layers) {
  for (int chunk = 0; chunk < facts.chunks; ++chunk) {
    if (chunk > 0) to.next_chunk();
    int const stage = facts.stage(rank, chunk), end = facts.first_layer(layers, stage + 1);
    for (int layer = facts.first_layer(layers, stage); layer < end; ++layer) {
      if (layer == 0)
        to.add(st::layer<FirstLayer>(FirstAttention(), Dispatch(), Experts(), Combine()));
      else if (layer == layers - 1)
        to.add(st::layer<LastLayer>(Attention(), Dispatch(), Experts(), LastCombine()));
      else
        to.add(st::layer<MoeLayer>(Attention(), Dispatch(), Experts(), Combine()));
    }
  }
}

/// Milliseconds of a step: the median over `repeat`, after one that nobody counts.
double measured(st::plan const& all, int layers, int repeat) {
  using tensor = st::null_tensors::tensor;
  st::plan_facts const& facts = all.facts();
  host::group group(facts.ranks);
  group.add_domain();
  host::mailbox<tensor> mailbox(group);
  std::vector<double> times;
  group.run([&](int rank) {
    host::communicator all_ranks = group.communicator(rank, 0);
    st::null_tensors tensors;
    host::lanes lanes({.rank = rank, .board = &group.board(), .peers = true});
    host::peers<tensor> peers(mailbox, rank);
    st::layer_list<Model> list;
    add_layers(list, facts, rank, layers);
    st::executor step(Step{}, st::backend{tensors, lanes, peers}, list, all, rank);
    for (int i = 0; i <= repeat; ++i) {
      all_ranks.barrier();
      double const start = host::now_us();
      step();
      all_ranks.barrier();
      if (rank == 0 && i > 0) times.push_back((host::now_us() - start) / 1000);
    }
  });
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

struct row {
  std::string name;
  double predicted, measured;
};

template <class... Pipelines> std::vector<row> run_all(int ranks, int microbatches, int layers, int repeat) {
  std::vector<row> rows;
  auto const run = [&](st::plan const& all) {
    double const predicted = plan_program::replay_of(all, *costs, layers).makespan;
    rows.push_back({all.facts().name, predicted, measured(all, layers, repeat)});
  };
  (run(st::proved_plan<Pipelines>(ranks, microbatches)), ...);
  return rows;
}

} // namespace

int main(int count, char** arguments) {
  int ranks = 4, microbatches = 16, layers = 16, repeat = 3;
  CLI::App options("Pipelines with phases that sleep, beside their replay");
  options.add_option("--ranks", ranks)->check(CLI::Range(1, 64));
  options.add_option("--microbatches", microbatches)->check(CLI::Range(1, 1000));
  options.add_option("--layers", layers, "of the model")->check(CLI::Range(2, 1000));
  options.add_option("--repeat", repeat)->check(CLI::Range(1, 100));
  CLI11_PARSE(options, count, arguments);
  costs = &plan_program::cost_presets()[1];

  auto const rows = run_all<st::OneFOneB, st::OneFOneBOverlapped, st::InterleavedOverlapped<2>, st::DualPipeV,
                            st::ZeroBubbleV>(ranks, microbatches, layers, repeat);
  std::printf("Costs: %s. %d ranks, %d microbatches, %d layers.\n\n", costs->name.c_str(), ranks,
              microbatches, layers);
  std::printf(
      "| pipeline | predicted | measured | measured / predicted | of %s, predicted | of %s, measured |\n"
      "| --- | --- | --- | --- | --- | --- |\n",
      rows.front().name.c_str(), rows.front().name.c_str());
  for (row const& one : rows)
    std::printf("| %s | %.1f ms | %.1f ms | %.4f | %.3f | %.3f |\n", one.name.c_str(), one.predicted,
                one.measured, one.measured / one.predicted, one.predicted / rows.front().predicted,
                one.measured / rows.front().measured);
}
