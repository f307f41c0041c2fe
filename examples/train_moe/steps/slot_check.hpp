#pragma once

#include "../options.hpp"
#include "../ranks/rank_communicator.hpp"

#include <ATen/ATen.h>

namespace train_moe {

/// Throws on every rank if on any of them a choice found no slot in step `step` (from 0), with the first such place. `use` is
/// the `slot_use` of the rank's `step_data`. Collective over `ranks`.
void check_slots(options const& o, at::Tensor const& use, int step, rank_communicator& ranks);

} // namespace train_moe
