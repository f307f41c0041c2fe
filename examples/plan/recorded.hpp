#pragma once

#include <stretto/timeline.hpp>

#include <map>
#include <string>
#include <vector>

namespace plan_program {

/// A step that `train_moe --trace` wrote.
struct recorded_step {
  std::string path;
  std::map<std::string, std::string> about; ///< how it was run
  std::vector<stretto::span> ops; ///< without messages, by rank, lane and start; times in milliseconds

  std::string const& text(std::string const& key) const { return about.at(key); }
  int number(std::string const& key) const;
};

/// Reads a trace that `flag` names. Throws usage_error in one sentence if it is none of train_moe, or damaged.
recorded_step read_trace(std::string const& flag, std::string const& path);

} // namespace plan_program
