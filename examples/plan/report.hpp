#pragma once

#include "draw.hpp"
#include "programs.hpp"

#include <string>
#include <vector>

namespace plan_program {

/// A simulated step in numbers, call by call or phase by phase.
struct report {
  stretto::plan_facts facts{};
  int layers = 0; ///< replayed phase by phase; 0: call by call
  double makespan = 0, ideal = 0;
  std::vector<rank_time> ranks; ///< live in activations of all layers of a rank
  double rank_bytes = 0; ///< of such an activation; 0: not known
  long messages = 0;

  double ratio() const { return ideal > 0 ? makespan / ideal : 1; }
};
report report_of(picture const& one);
report report_of(phase_replay const& one, layer_costs const& costs);

/// `1.5 (12.5%)`: a value and its share of the whole.
std::string with_percent(double value, double whole);

/// As an aligned table: one row per rank.
std::string report_table(report const& one, layer_costs const& costs);
std::string report_table(picture const& one);
/// The same as JSON.
std::string report_json(report const& one, layer_costs const& costs);

/// One pipeline among others at the same sizes.
struct compared {
  std::string name;
  std::string refused; ///< the sentence, where the pipeline cannot serve the sizes
  report numbers;
};

std::string compare_table(std::vector<compared> const& all, layer_costs const& costs, int ranks,
                          int microbatches, int layers);
std::string compare_json(std::vector<compared> const& all, layer_costs const& costs, int ranks,
                         int microbatches, int layers);

} // namespace plan_program
