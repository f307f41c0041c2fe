#pragma once

#include "costs.hpp"

#include <stretto/plan.hpp>
#include <stretto/simulate_ops.hpp>
#include <stretto/timeline.hpp>

#include <string>
#include <vector>

namespace plan_program {

/// The layer policies that have a picture.
std::vector<std::string> const& layer_policy_names();

/// The program of one layer pair, forward of one microbatch beside backward of another.
struct layer_pair {
  std::string policy;
  std::vector<stretto::op> rows; ///< the ports first
  std::vector<std::string> names; ///< `F.attn`, by row
  std::vector<stretto::op_label> label; ///< by row
  std::vector<double> cost; ///< by row
  std::vector<stretto::op_times> times; ///< by row, alone on two idle lanes
  std::string text;
  std::string unit;

  bool draws(std::size_t row) const { return !rows[row].is_port(); }
  double makespan() const;
  /// The time that its ops take on `lane`.
  double busy(stretto::lane on) const;
};
layer_pair pair_of(std::string const& policy, layer_costs const& costs);

/// Where the time of one rank went.
struct rank_time {
  double compute = 0, comm = 0;
  double exposed = 0; ///< communication runs and compute does not
  double bubble = 0; ///< neither runs
  double peak_live = 0; ///< live layer activations over the layers of a rank
};

/// A plan lowered to the ops of its layers and replayed: every lane in order, every op after what it waits for.
struct phase_replay {
  stretto::plan_facts facts{};
  int layers = 0; ///< of the model; embedding and head cost nothing
  std::vector<stretto::flat_table> tables;
  std::vector<std::vector<stretto::op_times>> times;
  std::vector<rank_time> ranks;
  double makespan = 0, ideal = 0;
  long messages = 0;

  stretto::op_label label(int rank, std::size_t row) const;
  std::vector<stretto::span> spans(int rank) const;
};
phase_replay replay_of(stretto::plan const& of, layer_costs const& costs, int layers);

} // namespace plan_program
