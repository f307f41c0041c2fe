#pragma once

#include "options.hpp"

#include <string>
#include <vector>

namespace train_moe {

/// What all ranks of a run must have in common, as lines: the flags as they were understood, and a digest of the plans.
std::string agreement_of(options const& o);

/// What is wrong with the agreements of all ranks, or nothing. Names every rank that differs from most of the others.
std::string difference_of(std::vector<std::string> const& agreements);

} // namespace train_moe
