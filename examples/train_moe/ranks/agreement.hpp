#pragma once

#include "../options.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace train_moe {

/// What all ranks of a run must have in common, as lines: the flags as they were understood, and digests of the plans and of
/// the text.
std::string agreement_of(options const& o, std::uint64_t text);

/// What is wrong with the agreements of all ranks, or nothing. Names every rank that differs from most of the others.
std::string difference_of(std::vector<std::string> const& agreements);

} // namespace train_moe
