#pragma once

#include "../options.hpp"
#include "../ranks/rank_place.hpp"
#include "../ranks/rank_transport.hpp"
#include "../ranks/rank_types.hpp"
#include "../ranks/stage_peers.hpp"

#include <stretto/adapters/host/failure.hpp>
#include <stretto/plan.hpp>
#include <stretto/timeline.hpp>

#include <chrono>
#include <memory>
#include <vector>

namespace train_moe {

/// Forward and backward of one step on one rank: reads the model's `step_data`, leaves losses there and gradients in the
/// parameters' accumulators.
class step_runner {
public:
  virtual ~step_runner() = default;
  virtual void run() = 0;
  /// The ops of the last step, if this way to run one has ops.
  virtual std::vector<stretto::span> timeline() { return {}; }
};

/// What the step of one rank is made from. `model`, `plan`, `peers` and `board` outlive it.
struct step_parts {
  language_model& model;
  stretto::plan const& plan;
  rank_place place;
  stage_peers& peers;
  stretto::host::failure_board& board;
  bool graph = false; ///< captured once and replayed
  bool timed = true; ///< ops are, where that costs something
  rank_communicator* together = nullptr; ///< the ranks that share a graph; null: each has its own
  rank_transport* transport = nullptr; ///< to be told of a graph; null where there is none
  std::chrono::seconds deadline{30}; ///< for ranks that share a graph and do not come to its capture
  std::chrono::microseconds look{0}; ///< of lanes that are threads, before they sleep
  bool own_cores = false; ///< the lane that computes has one to itself
};

/// The independent yardstick: one ordinary autograd graph for each microbatch of a stage, no schedule within it.
std::unique_ptr<step_runner> make_autograd_step(step_parts const& of);

// Schedules over lanes that are threads. One source each: a policy takes as long to compile as all else of the program.
std::unique_ptr<step_runner> make_serial_step(step_parts const& of);
std::unique_ptr<step_runner> make_two_stream_step(step_parts const& of);
std::unique_ptr<step_runner> make_split_step(step_parts const& of);

} // namespace train_moe
