#pragma once

#include <cstddef>

namespace train_moe {

/// From now on every tensor's memory on the CPU is counted. Call it before there is any tensor.
void count_tensor_memory();

/// Bytes of all live tensors of this process, and the most since `restart_peak`, as the threads of all ranks happened to run.
/// A lane may be ahead of another by all that no wait forbids, and a lane that is behind gives back late: the peak of one
/// schedule differs from run to run, by a fifth on a machine with fewer cores than threads (29 to 34 MiB of `split_dw` at
/// default sizes). What lives in the order of issue is exact, and asserted in tests/array/memory.cpp.
std::size_t live_tensor_bytes();
std::size_t peak_tensor_bytes();
void restart_peak();

} // namespace train_moe
