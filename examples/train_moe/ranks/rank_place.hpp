#pragma once

namespace train_moe {

/// Where a rank stands in the grid of a run: expert ranks of one stage are neighbours, as in Megatron-LM.
struct rank_place {
  int ep = 1; ///< expert ranks
  int pp = 1; ///< pipeline ranks
  int rank = 0;

  int expert_rank() const { return rank % ep; }
  int pipeline_rank() const { return rank / ep; }
  /// The rank of the run that is `pipeline_rank` of the same pipeline.
  int of_pipeline(int pipeline_rank) const { return pipeline_rank * ep + expert_rank(); }
};

} // namespace train_moe
