#pragma once

#include "corpus.hpp"
#include "options.hpp"
#include "ranks/processes.hpp"
#include "ranks/rank_place.hpp"

#include <stretto/timeline.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace train_moe {

/// What one training run leaves.
struct run_result {
  policy how{};
  std::string pipeline;
  std::vector<double> losses; ///< nats per byte, of each step
  std::vector<double> step_seconds; ///< forward, backward and update
  std::vector<double> schedule_seconds; ///< of these forward and backward
  double held_out_loss = 0;
  double bigram_loss = 0; ///< of the same held-out bytes
  std::string gradient_digest;
  double exposed_seconds = 0; ///< of all steps, mean over the ranks; not a number where ops were not timed
  double link_seconds = 0; ///< modelled link time of all steps, of the first rank
  std::size_t peak_bytes = 0; ///< of tensors that a step makes, all ranks together
  std::vector<std::size_t> process_peak_bytes; ///< the same of each process
  std::vector<stretto::span> last_step;
  std::vector<long> process_ids; ///< of the ranks; one of them if all are threads of one process
};

struct progress {
  int step; ///< steps done
  double loss;
  double tokens_per_second;
  double seconds_left;
};

/// Whether this program can train there, whatever the machine.
bool serves(device_kind device);
/// Before the first run with these options; `place` is that of a process, nothing where the ranks are threads. Throws
/// `input_error` if this machine cannot serve it.
void prepare(options const& o, std::optional<rank_place> const& place = {});

/// Trains on a thread for each of `o.ep * o.pp` ranks, or as one of `others`, and calls `report` after every step on rank 0,
/// which alone has the whole result.
/// Throws what a step throws, with rank and op in the text.
run_result train(options const& o, policy how, corpus const& text,
                 std::function<void(progress const&)> const& report, processes* others = nullptr);

} // namespace train_moe
