#pragma once

#include "../model/model.hpp"
#include "expert_exchange.hpp"
#include "rank_communicator.hpp"
#include "timed_exchange.hpp"

namespace train_moe {

using language_model = rank_model<expert_exchange>;

} // namespace train_moe
