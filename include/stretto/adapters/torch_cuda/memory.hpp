#pragma once

#include <c10/cuda/CUDACachingAllocator.h>

#include <cstddef>

namespace stretto {
inline namespace v0 {
namespace torch_cuda {

/// Bytes that all tensors on the current device take up, of all ranks that share it.
inline std::size_t live_bytes() {
  auto const stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  return static_cast<std::size_t>(stats.allocated_bytes[0].current);
}
/// The most since `restart_peak`.
inline std::size_t peak_bytes() {
  auto const stats = c10::cuda::CUDACachingAllocator::getDeviceStats(c10::cuda::current_device());
  return static_cast<std::size_t>(stats.allocated_bytes[0].peak);
}
inline void restart_peak() { c10::cuda::CUDACachingAllocator::resetPeakStats(c10::cuda::current_device()); }

} // namespace torch_cuda
} // namespace v0
} // namespace stretto
