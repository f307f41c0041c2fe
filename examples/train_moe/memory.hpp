#pragma once

#include <cstddef>

namespace train_moe {

/// From now on every tensor's memory on the CPU is counted. Call it before there is any tensor.
void count_tensor_memory();

/// Bytes of all live tensors of this process, and the most since `restart_peak`.
std::size_t live_tensor_bytes();
std::size_t peak_tensor_bytes();
void restart_peak();

}  // namespace train_moe
