#pragma once

#include "options.hpp"

#include <cstddef>
#include <string>

namespace train_moe {

/// What the tensors of some ranks of a run take up at least.
struct memory_forecast {
  std::size_t parameters = 0; ///< weights, gradients and the optimizer's state
  /// What forwards leave for their backwards, at most at a time in the order of issue.
  std::size_t activations = 0;

  std::size_t all() const { return parameters + activations; }
  memory_forecast share(int part, int whole) const {
    auto const of = [&](std::size_t bytes) {
      return bytes * static_cast<std::size_t>(part) / static_cast<std::size_t>(whole);
    };
    return {of(parameters), of(activations)};
  }
};

/// Of all ranks. Parameters are exact. Activations are those that the plan of `how` has alive, with what torch keeps of each
/// layer, rows spread over the experts as evenly as can be and nothing of what an op makes for itself: a step takes more.
memory_forecast forecast(options const& o, policy how);

/// The flags that make a run smaller, and how much it needs: for a sentence about memory that does not suffice.
std::string told(memory_forecast const& needs);

/// Throws `input_error` if a policy of the run does not fit into `free` bytes, which so many of its ranks share.
void require_memory(options const& o, std::size_t free, int ranks);

/// `problem`, what a library says that found no memory, as one sentence with op and forecast; others as they are.
std::string with_forecast(std::string const& problem, options const& o, policy how);

} // namespace train_moe
