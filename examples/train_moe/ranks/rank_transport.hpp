#pragma once

#include "../options.hpp"
#include "rank_links.hpp"
#include "rank_place.hpp"
#include "rank_rows.hpp"
#include "stage_peers.hpp"

#include <stretto/plan.hpp>

namespace train_moe {

/// How one rank of a run reaches the others with what its device holds.
class rank_transport {
public:
  virtual ~rank_transport() = default;
  /// Among the expert ranks of the same stages.
  virtual rank_rows& rows() = 0;
  /// Along the pipeline.
  virtual stage_peers& peers() = 0;
  /// Whether the ranks of a process must be captured into one graph.
  virtual bool shares_capture() const { return false; }
  /// This rank has captured its step. Collective; what is replayed may not run before others have ended their captures.
  virtual void step_was_captured() {}
  /// This rank has launched its captured step, which the current stream waits for.
  virtual void step_was_launched() {}
};

/// What it is made from, all of which outlives it. Collective over the ranks of the run.
struct transport_parts {
  options const& o;
  policy how;
  stretto::plan const& plan;
  rank_place place;
  rank_links& links;
};

} // namespace train_moe
