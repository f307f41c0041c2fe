#pragma once

#include "programs.hpp"
#include "recorded.hpp"

#include <stretto/timeline.hpp>

#include <string>
#include <vector>

namespace plan_program {

/// A step that ran, beside the replay of its plan. What the ops of the replay cost is measured in a run of its own, in which
/// one op runs at a time, or in one for each pipeline rank where ranks compute at different speeds: nothing is fitted to the
/// step that is predicted. Times in milliseconds.
struct measured_step {
  phase_replay predicted;
  std::string policy, trace, costs; ///< the last two are files
  int expert_ranks = 1, dense = 0;
  int serial_runs = 1; ///< 1, or as many as there are pipeline ranks
  /// Of the first expert rank of each pipeline rank, which is what their `rank` counts.
  std::vector<stretto::span> ops;
  std::vector<std::vector<int>> layer_chunk; ///< by pipeline rank: the chunk of each of its layers
  std::vector<rank_time> ranks; ///< measured, mean over the expert ranks
  double makespan = 0; ///< measured
  /// Of the plan replayed with what the ops of this step took: what is above it in `makespan` was spent between ops.
  double of_own_ops = 0;

  double ratio() const { return makespan / predicted.makespan; }
  std::string title() const;
  /// Where both come from, in two lines.
  std::string method() const;
};

/// `costs` has as many ranks as there are expert ranks, or as `trace` has: then ops of pipeline rank p cost what they took, in the
/// mean, on its expert ranks, which are p * ep and on. Throws usage_error where it has another number or is no serial run of the
/// same model, or `trace` has other ops than its plan.
measured_step compare_with_run(recorded_step const& trace, recorded_step const& costs);

/// Two rows a rank, a character for a moment: predicted above, measured below.
std::string draw_text(measured_step const& one);
/// Two bands a rank, both with compute above and communication below.
std::string draw_svg(measured_step const& one);
std::string report_table(measured_step const& one);
std::string report_json(measured_step const& one);

} // namespace plan_program
