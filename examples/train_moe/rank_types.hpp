#pragma once

#include "model/model.hpp"
#include "rank_communicator.hpp"
#include "timed_exchange.hpp"

#include <stretto/adapters/torch/expert_parallel.hpp>

namespace train_moe {

using expert_exchange = stretto::torch::expert_parallel<rank_rows>;
using language_model = rank_model<expert_exchange>;

}  // namespace train_moe
