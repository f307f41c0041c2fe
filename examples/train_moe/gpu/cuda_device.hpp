#pragma once

#include "../run_device.hpp"

namespace train_moe {

/// The GPUs that this process sees. To be put into `cuda_device()`.
run_device const& all_gpus();

} // namespace train_moe
