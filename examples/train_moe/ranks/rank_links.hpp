#pragma once

#include "rank_communicator.hpp"
#include "stage_peers.hpp"

#include <stretto/adapters/host/failure.hpp>

namespace train_moe {

/// What joins one rank of a run to the others.
class rank_links {
public:
  virtual ~rank_links() = default;
  /// All ranks of the run.
  virtual rank_communicator all() = 0;
  /// The expert ranks of the same stages: for the lane of a step, and for what comes between steps.
  virtual rank_communicator rows() = 0;
  virtual rank_communicator replicas() = 0;
  virtual stage_peers& peers() = 0;
  virtual stretto::host::failure_board& board() = 0;
  /// Whether the ranks are threads of one process, with one clock and one count of memory.
  virtual bool shares_process() const = 0;
};

} // namespace train_moe
