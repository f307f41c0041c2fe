#pragma once

#include "options.hpp"
#include "rank_types.hpp"

#include <stretto/adapters/host/failure.hpp>
#include <stretto/timeline.hpp>

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
  virtual char const* pipeline() const = 0;
};

/// The independent yardstick: one ordinary autograd graph for each microbatch, no schedule.
std::unique_ptr<step_runner> make_autograd_step(language_model& model);

/// A schedule over two lanes of this rank.
std::unique_ptr<step_runner> make_executor_step(policy how, language_model& model, int rank,
                                                stretto::host::failure_board& board);

}  // namespace train_moe
