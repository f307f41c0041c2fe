#pragma once

#include "../spread.hpp"
#include "power.hpp"
#include "rank_bench.hpp"

#include <cublas_v2.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace layer_pairs {

/// What one size gave.
struct row {
  shape of;
  int measured_pairs = 0;
  int multiprocessors = 0; ///< that GEMMs beside communication aim at
  std::vector<step_times> times[variants];
  std::vector<step_times> captured[2]; ///< split_by_hand, split_executor
  std::vector<double> cold_compute_pair_us;
  double dilation = 0;
  power_watch::summary power;
};

using bench::spread, bench::spread_of;

class report {
public:
  report(std::string transport, int gpus, int ranks, settings const& how) : transport_(std::move(transport)) {
    cudaDeviceProp gpu{};
    int runtime = 0, driver = 0, blas = 0;
    cuda::check(cudaGetDeviceProperties(&gpu, 0), "cudaGetDeviceProperties");
    cuda::check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    cuda::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    blas = static_cast<int>(cublasGetCudartVersion());
    int parts[3] = {};
    for (int i = 0; i < 3; ++i) {
      libraryPropertyType const which[] = {MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
      check(cublasGetProperty(which[i], &parts[i]), "cublasGetProperty");
    }
    all_ = {{"transport", transport_},
            {"gpus", gpus},
            {"ranks", ranks},
            {"gpu", gpu.name},
            {"multiprocessors", gpu.multiProcessorCount},
            {"cuda_runtime", runtime},
            {"cuda_of_cublas", blas},
            {"driver_supports_cuda", driver},
            {"cublas",
             std::to_string(parts[0]) + "." + std::to_string(parts[1]) + "." + std::to_string(parts[2])},
            {"repeats", how.repeats},
            {"warm_up", how.warm_up},
            {"gated", how.gated},
            {"wall", how.wall},
            {"rows", nlohmann::json::array()}};
  }

  void header(std::ostream& to) const {
    to << all_["gpu"].get<std::string>() << ", " << transport_ << ", GPUs " << all_["gpus"] << ", ranks "
       << all_["ranks"] << "; us a steady pair, medians\n"
       << "size            MiB   comp   comm ratio | serial hand/exec  two_stream h/e   split h/e        | "
          "ex/bound exposed% "
          "vs serial exec/hand | host us h/e dil MHz W capped\n"
       << std::flush;
  }

  void add(std::ostream& to, row const& one) {
    double pair[variants] = {};
    nlohmann::json ways;
    for (int which = 0; which < variants; ++which) {
      auto const of = [&](auto get) {
        std::vector<double> all;
        for (auto const& each : one.times[which]) all.push_back(get(each));
        return all;
      };
      auto const by = [&](double step_times::*what) {
        return json_of(spread_of(of([=](step_times const& t) { return t.*what; })));
      };
      // The lane that takes longer counts; of compute alone and communication alone it is theirs.
      auto const steady = spread_of(of([=](step_times const& t) {
        return which == compute_only ? t.compute_pair_us
               : which == comm_only  ? t.comm_pair_us
                                     : (std::max)(t.compute_pair_us, t.comm_pair_us);
      }));
      pair[which] = steady.median;
      ways[variant_names[which]] = {{"pair_us", json_of(steady)},
                                    {"step_us", by(&step_times::step_us)},
                                    {"host_us_a_pair", by(&step_times::host_pair_us)},
                                    {"wall_us", by(&step_times::wall_us)},
                                    {"pair_us_of_each_repeat", of([=](step_times const& t) {
                                       return (std::max)(t.compute_pair_us, t.comm_pair_us);
                                     })}};
    }
    nlohmann::json graphs = nlohmann::json::object();
    for (int i = 0; i < 2; ++i) {
      auto const by = [&](double step_times::*what) {
        std::vector<double> all;
        for (auto const& each : one.captured[i]) all.push_back(each.*what);
        return json_of(spread_of(all));
      };
      if (!one.captured[i].empty())
        graphs[variant_names[split_by_hand + i]] = {{"step_us", by(&step_times::step_us)},
                                                    {"launch_us_a_pair", by(&step_times::host_pair_us)},
                                                    {"wall_us", by(&step_times::wall_us)}};
    }
    double const bound = (std::max)(pair[compute_only], pair[comm_only]),
                 cold = spread_of(one.cold_compute_pair_us).median;
    auto const of_way = [&](variant hand, variant executor) {
      return nlohmann::json{{"executor_over_hand", pair[executor] / pair[hand]},
                            {"over_bound", pair[executor] / bound},
                            {"over_cold_bound", pair[executor] / (std::max)(cold, pair[comm_only])},
                            {"exposed_us", pair[executor] - pair[compute_only]},
                            {"exposed_of_step", (pair[executor] - pair[compute_only]) / pair[executor]},
                            {"beyond_bound_of_step", (pair[executor] - bound) / pair[executor]},
                            {"hidden_of_comm", 1 - (pair[executor] - pair[compute_only]) / pair[comm_only]},
                            {"speed_up_over_serial", pair[serial_executor] / pair[executor]}};
    };
    all_["rows"].push_back(
        {{"tokens", one.of.tokens},
         {"width", one.of.width},
         {"mib_to_each_peer", static_cast<double>(one.of.peer_bytes()) / 1048576},
         {"layers", one.of.layers},
         {"microbatches", one.of.microbatches},
         {"measured_pairs", one.measured_pairs},
         {"gemms_aim_at_multiprocessors", one.multiprocessors},
         {"comm_of_compute", pair[comm_only] / pair[compute_only]},
         {"ways", ways},
         {"captured", graphs},
         {"cold_compute_pair_us", cold},
         {"serial", of_way(serial_by_hand, serial_executor)},
         {"two_stream", of_way(two_stream_by_hand, two_stream_executor)},
         {"split", of_way(split_by_hand, split_executor)},
         {"compute_dilation", one.dilation > 0 ? nlohmann::json(one.dilation) : nlohmann::json()},
         {"power",
          {{"samples", one.power.samples},
           {"median_mhz", one.power.median_mhz},
           {"least_mhz", one.power.least_mhz},
           {"most_mhz", one.power.most_mhz},
           {"median_watts", one.power.median_watts},
           {"most_watts", one.power.most_watts},
           {"capped_part", one.power.capped_part}}}});
    auto const host = [&](variant which) {
      std::vector<double> all;
      for (auto const& each : one.times[which]) all.push_back(each.host_pair_us);
      return spread_of(all).median;
    };
    char line[400];
    std::snprintf(line, sizeof line,
                  "%5dx%-5d %8.2f %6.0f %6.0f %5.2f | %7.0f %7.0f  %7.0f %7.0f  %7.0f %7.0f | %.3f %6.1f %% "
                  "%.3f %.3f | %.0f "
                  "%.0f %.3f %.0f %.0f %.2f\n",
                  one.of.tokens, one.of.width, static_cast<double>(one.of.peer_bytes()) / 1048576,
                  pair[compute_only], pair[comm_only], pair[comm_only] / pair[compute_only],
                  pair[serial_by_hand], pair[serial_executor], pair[two_stream_by_hand],
                  pair[two_stream_executor], pair[split_by_hand], pair[split_executor],
                  pair[split_executor] / bound, 100 * (pair[split_executor] - bound) / pair[split_executor],
                  pair[serial_executor] / pair[split_executor], pair[split_executor] / pair[split_by_hand],
                  host(split_by_hand), host(split_executor), one.dilation, one.power.median_mhz,
                  one.power.median_watts, one.power.capped_part);
    to << line;
    for (auto const& [name, of] : graphs.items())
      to << "    captured " << name << ": step " << of["step_us"]["median"].get<double>()
         << " us on the GPU (" << ways[name]["step_us"]["median"].get<double>()
         << " eager), launch of a pair " << of["launch_us_a_pair"]["median"].get<double>() << " us, wall "
         << of["wall_us"]["median"].get<double>() << " us (" << ways[name]["wall_us"]["median"].get<double>()
         << " eager)\n";
    to << std::flush;
  }

  nlohmann::json const& json() const { return all_; }

private:
  static nlohmann::json json_of(spread const& of) {
    return {{"median", of.median}, {"p10", of.p10}, {"p90", of.p90}};
  }

  std::string transport_;
  nlohmann::json all_;
};

} // namespace layer_pairs
