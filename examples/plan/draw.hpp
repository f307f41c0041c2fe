#pragma once

#include "costs.hpp"
#include "programs.hpp"

#include "../shared/numbers.hpp"

#include <stretto/simulate.hpp>

#include <string>

namespace plan_program {

using examples::round_step;
using examples::short_number;

/// `dual_pipe_v, 4 ranks, 8 microbatches, 2 chunks a rank`.
std::string title_of(stretto::plan_facts const& facts);

/// A simulated plan, ready to be drawn or reported.
struct picture {
  stretto::plan const& of;
  stretto::simulation const& run;
  layer_costs const& costs;

  stretto::plan_facts const& facts() const { return of.facts(); }
  double start(int rank, long at) const { return run.times().start[of.first(rank) + at]; }
  double finish(int rank, long at) const { return run.times().finish[of.first(rank) + at]; }
  std::string title() const;
  /// `makespan 57, 1.19 of ideal; ...`.
  std::string summary() const;
};

/// Rows of characters, one per rank, in panels that fit a terminal.
std::string draw_text(picture const& one);
/// A Mermaid Gantt chart.
std::string draw_mermaid(picture const& one);
/// A picture with a legend; kinds differ in lightness, so that they survive a grey printer and colour blindness.
std::string draw_svg(picture const& one);
/// Chrome's trace event format: chrome://tracing and Perfetto read it.
std::string draw_trace(picture const& one);

/// A layer pair: its program as text, and how long it takes.
std::string draw_text(layer_pair const& one);
/// A Mermaid graph: the lanes in order, and the waits between them.
std::string draw_mermaid(layer_pair const& one);
/// Two lanes side by side, with an arrow for every wait.
std::string draw_svg(layer_pair const& one);
std::string draw_trace(layer_pair const& one);

/// Two rows a rank: compute above, communication below.
std::string draw_svg(phase_replay const& one, layer_costs const& costs);
std::string draw_trace(phase_replay const& one, layer_costs const& costs);

} // namespace plan_program
