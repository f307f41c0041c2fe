/// Layer pairs through the executor and by the same calls written by hand: real GEMMs, real all-to-alls, real edges. Ranks are
/// threads. Every way of running the step, its compute alone and its communication alone take turns in each repeat.
#include "pairs/power.hpp"
#include "pairs/rank_bench.hpp"
#include "pairs/report.hpp"
#include "pairs/transports.hpp"

#include <CLI/CLI.hpp>

#include <cstdio>
#include <fstream>
#include <iostream>

namespace {

using namespace layer_pairs;

struct arguments {
  std::vector<std::string> sizes{"1024x2048:2", "2048x2048:4", "4096x4096:16", "8192x4096:64"};
  std::vector<double> ratios{0};
  std::string transport = "staged", json;
  int gpus = 1, ranks = 2, layers = 6, microbatches = 4;
  bool graph = false;
  settings how;
  stretto::nccl::communicator_options nccl;
};

/// `TOKENSxWIDTH:MIB`
shape shape_of(std::string const& text, arguments const& from) {
  shape of;
  double mib = 0;
  if (std::sscanf(text.c_str(), "%dx%d:%lf", &of.tokens, &of.width, &mib) != 3 || of.tokens < 64 ||
      of.width < 64 || mib <= 0)
    throw std::invalid_argument("--sizes wants TOKENSxWIDTH:MIB, such as 4096x4096:16, and got '" + text +
                                "'");
  of.layers = from.layers;
  of.microbatches = from.microbatches;
  // Large GEMMs need fewer pairs to be measured well.
  double const size = static_cast<double>(of.tokens) * of.width;
  if (size > 1e7) of.layers = (std::min)(of.layers, 4);
  if (size > 3e7) of.microbatches = (std::min)(of.microbatches, 3);
  of.peer_rows = (std::max)(1, static_cast<int>(mib * 1048576 / static_cast<double>(of.row_bytes())));
  if (of.pairs() <= probe::left_out + 1)
    throw std::invalid_argument("--layers times (--microbatches - 1) must be more than " +
                                std::to_string(probe::left_out + 1) +
                                ", else there is no steady pair to measure");
  return of;
}

/// Bytes with which the all-to-alls of a pair take `ratio` times its compute.
void calibrate(shape& of, double ratio, meeting const& with, int rank, settings const& how,
               make_transport const& transport) {
  for (int round = 0; round < 2; ++round) {
    rank_bench bench(with, rank, of, how, transport);
    double compute = 0, comm = 0;
    // What is loaded at its first call must not be called behind the gate.
    for (int i = 0; i < 3; ++i) {
      compute = bench.run(compute_only, i > 0 && bench.gated()).compute_pair_us;
      comm = bench.run(comm_only, i > 0 && bench.gated()).comm_pair_us;
    }
    of.peer_rows = (std::max)(1, static_cast<int>(of.peer_rows * ratio * compute / comm));
  }
}

row measure(shape const& of, meeting const& with, int rank, arguments const& from,
            make_transport const& transport, power_watch* power) {
  settings const& how = from.how;
  rank_bench bench(with, rank, of, how, transport);
  row result;
  result.of = of;
  result.measured_pairs = of.pairs() - 1 - probe::left_out;
  result.multiprocessors = bench.multiprocessors();
  auto const bits_of = [&](variant which) {
    bench.run(which, false);
    return bench.checksum();
  };
  // GEMMs that aim at fewer multiprocessors may sum in another order.
  auto const alone = bits_of(serial_by_hand), beside = bits_of(serial_beside);
  auto const expected = [&](variant which) {
    return which == serial_by_hand || which == serial_executor ? alone : beside;
  };
  for (auto const which :
       {serial_executor, two_stream_by_hand, two_stream_executor, split_by_hand, split_executor})
    if (bits_of(which) != expected(which))
      throw std::runtime_error(std::string(variant_names[which]) +
                               " computed or received other bits than a serial step by hand");
  std::vector<variant> const in_graphs{split_by_hand, split_executor};
  if (from.graph) bench.capture(in_graphs);

  // The bound that a chip reaches which is not hot yet.
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  for (int i = 0; i < 3; ++i)
    result.cold_compute_pair_us.push_back(bench.run(compute_only, bench.gated()).compute_pair_us);
  if (power) power->take();

  for (int repeat = -how.warm_up; repeat < how.repeats; ++repeat) {
    for (int turn = 0; turn < variants; ++turn) {
      // By hand and executor take turns at being first.
      auto const which = static_cast<variant>(turn < compute_only && repeat % 2 != 0 ? turn ^ 1 : turn);
      auto times = bench.run(which, bench.gated());
      if (which < compute_only && bench.checksum() != expected(which))
        throw std::runtime_error(std::string(variant_names[which]) + ": the bits of a timed run differ");
      if (bench.gated() && how.wall) times.wall_us = bench.run(which, false).wall_us;
      if (repeat >= 0) result.times[which].push_back(times);
    }
    for (std::size_t i = 0; i < bench.captured(); ++i) {
      auto times = bench.replay(i, bench.gated());
      if (bench.checksum() != beside)
        throw std::runtime_error(std::string(variant_names[in_graphs[i]]) + ": the bits of a replay differ");
      if (bench.gated() && how.wall) times.wall_us = bench.replay(i, false).wall_us;
      if (repeat >= 0) result.captured[i].push_back(times);
    }
  }
  if (power) result.power = power->take();
  // Spans of ranks that share a GPU stretch each other, with and without communication.
  if (from.ranks <= from.gpus)
    for (double const each : bench.of_all(bench.dilation()))
      result.dilation = (std::max)(result.dilation, each);
  bench.forget();
  return result;
}

int run(arguments const& from) {
  int gpus = 0;
  if (cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0) {
    std::printf("skipped: needs a GPU\n");
    return 77;
  }
  if (from.gpus > gpus) {
    std::fprintf(stderr, "--gpus %d, but this machine shows %d\n", from.gpus, gpus);
    return 2;
  }
  report all(from.transport, from.gpus, from.ranks, from.how);
  all.header(std::cout);
  host::group_options options;
  options.deadline = std::chrono::seconds(20);
  host::group group(from.ranks, options);
  group.add_domain();
  stream_gate gate(from.ranks);
  power_watch power(0);
  meeting const with{group, gate};
  auto const transport = transport_named(from.transport, group, from.nccl);
  for (auto const& size : from.sizes)
    for (double const ratio : from.ratios)
      group.run([&](int rank) {
        cuda::check(cudaSetDevice(rank % from.gpus), "cudaSetDevice");
        shape of = shape_of(size, from);
        if (ratio > 0) calibrate(of, ratio, with, rank, from.how, transport);
        row const measured = measure(of, with, rank, from, transport, rank == 0 ? &power : nullptr);
        if (rank != 0) return;
        all.add(std::cout, measured);
        if (!from.json.empty()) std::ofstream(from.json) << all.json().dump(1) << '\n';
      });
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  // Before the first context: else streams share queues and wait for each other.
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  arguments from;
  CLI::App app("layer pairs through the executor and by hand");
  app.add_option("--sizes", from.sizes, "TOKENSxWIDTH:MIB to each other rank")->delimiter(',');
  app.add_option("--ratios", from.ratios,
                 "communication : compute, by which bytes are chosen; 0: the bytes of the size")
      ->delimiter(',');
  app.add_option("--transport", from.transport, transport_names);
  app.add_option("--gpus", from.gpus)->check(CLI::PositiveNumber);
  app.add_option("--ranks", from.ranks)->check(CLI::Range(2, 8));
  app.add_option("--layers", from.layers)->check(CLI::PositiveNumber);
  app.add_option("--microbatches", from.microbatches)->check(CLI::Range(2, 1000));
  app.add_option("--repeats", from.how.repeats)->check(CLI::PositiveNumber);
  app.add_option("--warm-up", from.how.warm_up)->check(CLI::NonNegativeNumber);
  app.add_option("--multiprocessors", from.how.multiprocessors,
                 "that GEMMs beside communication aim at; 0: all, -1: what the transport leaves");
  app.add_option("--gated-pairs", from.how.gated_pairs, "that are issued before the GPU may start");
  app.add_flag("--graph", from.graph, "split_dw captured as a graph beside it");
  app.add_flag("!--no-gate", from.how.gated, "times on the GPU with host time in them");
  app.add_flag("!--no-wall", from.how.wall, "no runs for wall time beside the gated ones");
  app.add_option("--nccl-ctas", from.nccl.most_ctas, "that NCCL may take at most; 0: its own choice");
  app.add_option("--nccl-cluster", from.nccl.cluster_size,
                 "thread blocks of a cluster; 0: NCCL's own choice");
  app.add_option("--json", from.json, "a file to write");
  CLI11_PARSE(app, argc, argv);
  try {
    return run(from);
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
  }
}
