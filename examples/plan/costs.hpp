#pragma once

#include <stretto/simulate.hpp>

#include <string>
#include <vector>

namespace plan_program {

/// What one layer costs, phase by phase, and how many layers a rank holds. Phases of `weight` need no communication.
struct layer_costs {
  struct phases {
    double attn = 0, dispatch = 0, mlp = 0, combine = 0;
  };
  std::string name, source, unit;
  phases forward, input, weight;
  double message = 0; ///< one message between two ranks
  double layers_per_rank = 1; ///< a chunk holds this over the chunks of a rank
  /// What the forward of a layer leaves for its backward, of one microbatch; 0: not known.
  double layer_bytes = 0;

  /// A chunk alone takes the sum of its phases; attn and mlp are compute, dispatch and combine communication.
  stretto::chunk_costs chunk(int chunks) const;
};

/// The presets, each with the public source of its figures.
std::vector<layer_costs> const& cost_presets();
bool is_preset(std::string const& name);

/// The preset called `text`, or the costs in the JSON file of that name. Throws usage_error in one sentence.
layer_costs find_costs(std::string const& text);

} // namespace plan_program
