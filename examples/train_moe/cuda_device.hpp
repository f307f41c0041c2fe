#pragma once

#include "run_device.hpp"

namespace train_moe {

/// All ranks on the first GPU, rows between them through host memory. To be put into `cuda_device()`.
run_device const& first_gpu();

}  // namespace train_moe
