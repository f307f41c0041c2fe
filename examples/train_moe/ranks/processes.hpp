#pragma once

#include "../options.hpp"
#include "rank_place.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace train_moe {

class rank_links;

/// This process as one of the ranks of a run.
class processes {
public:
  virtual ~processes() = default;
  virtual rank_place place() const = 0;
  virtual rank_links& links() = 0;
  /// Returns when all ranks are done: whoever leaves closes connections that another may still read from.
  virtual void leave() = 0;
  /// What this process has to say after a failure: that of the rank where it began, if that has told its name and op in time.
  virtual std::string told(std::string const& problem, bool names_op) = 0;
};

/// The place in a launch that RANK and WORLD_SIZE speak of (see torchrun); nothing where neither is set. Throws `input_error`
/// if they do not go together, or not with the flags.
std::optional<rank_place> place_in_launch(options const& o);

/// Joins the other processes of the launch at MASTER_ADDR and MASTER_PORT. Returns when all are there and agree on `o`; throws
/// `input_error` if one is missing or differs, on every rank. `on_failure` is called, on a thread of its own, when an op of this
/// rank has failed and the rest of the rank has had the time to end. `text`: a digest of what this rank has read to train on.
std::unique_ptr<processes> join_processes(options const& o, std::uint64_t text,
                                          std::function<void(std::string const&, bool)> on_failure);

} // namespace train_moe
