#pragma once

#include "model/model.hpp"
#include "timed_exchange.hpp"

#include <stretto/adapters/host/communicator.hpp>
#include <stretto/adapters/torch/expert_parallel.hpp>

namespace train_moe {

/// Ranks are threads of this process.
using rank_communicator = stretto::host::communicator;
using expert_exchange = stretto::torch::expert_parallel<rank_rows>;
using language_model = rank_model<expert_exchange>;

}  // namespace train_moe
