#pragma once

#include "costs.hpp"

#include <stretto/plan.hpp>
#include <stretto/plan/error.hpp>
#include <stretto/simulate/ops.hpp>
#include <stretto/timeline.hpp>

#include <span>
#include <stdexcept>
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

/// Where the time of `rank` went in a step of that length, from the ops that ran on it.
rank_time rank_time_of(std::span<stretto::span const> spans, int rank, double makespan);

/// A plan lowered to the ops of its layers and replayed: every lane in order, every op after what it waits for.
struct phase_replay {
  stretto::plan_facts facts{};
  int layers = 0; ///< of the model, without embedding and head
  stretto::op_label (*name)(stretto::plan_facts const&, int rank, stretto::op const&) = nullptr;
  std::vector<stretto::flat_table> tables;
  std::vector<std::vector<stretto::op_times>> times;
  std::vector<rank_time> ranks;
  double makespan = 0, ideal = 0;
  long messages = 0;

  stretto::op_label label(int rank, std::size_t row) const;
  std::vector<stretto::span> spans(int rank) const;
  void add_up(); ///< the sums, from tables and times
};
/// Throws usage_error that names `flag` where a replay of so many layers would not fit into memory; `instead` says what to do.
void require_fits(std::string const& flag, stretto::plan_facts const& facts, int layers,
                  std::string const& instead);

/// Of a model of MoE layers whose embedding and head cost nothing.
phase_replay replay_of(stretto::plan const& of, layer_costs const& costs, int layers);

/// Replays a proved plan with schedule `S`; `shape(rank)` are the layers of a rank, `cost(rank, label)` the time of an op.
template <class Schedule, class Shape, class Cost>
phase_replay replay_layers(stretto::plan const& of, int layers, Shape&& shape, Cost&& cost, double message) {
  stretto::plan_facts const& facts = of.facts();
  phase_replay replay;
  replay.facts = facts, replay.layers = layers, replay.name = &stretto::label_of<Schedule>;
  stretto::plan_steps const lists = stretto::lower_messages(of);
  stretto::require(facts, stretto::check_messages(of, lists));
  for (int rank = 0; rank < facts.ranks; ++rank) {
    replay.tables.push_back(stretto::lower_rank<Schedule>(of, lists, rank, shape(rank)));
    if (replay.tables.back().check()) throw std::logic_error("the lowered plan is not legal");
  }
  replay.times = stretto::simulate_ops(
      facts, replay.tables,
      [&](int rank, stretto::op const& row) {
        return cost(rank, stretto::label_of<Schedule>(facts, rank, row));
      },
      message);
  replay.add_up();
  return replay;
}

} // namespace plan_program
