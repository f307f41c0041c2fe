#pragma once

#include "draw.hpp"

#include <string>
#include <vector>

namespace plan_program {

/// The simulated step as an aligned table: one row per rank.
std::string report_table(picture const& one);
/// The same as JSON.
std::string report_json(picture const& one);

/// One pipeline among others at the same sizes.
struct compared {
  std::string name;
  std::string refused; ///< the sentence, where the pipeline cannot serve the sizes
  int chunks = 0;
  double makespan = 0, ratio = 0, bubble = 0,
         exposed = 0; ///< bubble and exposed communication of the worst rank
  double peak_live = 0; ///< of the worst rank, in activations of a whole rank's layers
  long messages = 0;
};

/// The numbers of one plan for a comparison.
compared compare_one(picture const& one);

std::string compare_table(std::vector<compared> const& all, layer_costs const& costs, int ranks,
                          int microbatches);
std::string compare_json(std::vector<compared> const& all, layer_costs const& costs, int ranks,
                         int microbatches);

} // namespace plan_program
