#pragma once

#include "options.hpp"
#include "trainer.hpp"

#include <string>

namespace train_moe {

/// The last step of a run as SVG: the ops of every rank over time.
std::string draw_step(options const& o, run_result const& run);

} // namespace train_moe
