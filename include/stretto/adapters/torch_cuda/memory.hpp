#pragma once

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cstddef>

namespace stretto {
inline namespace v0 {
namespace torch_cuda {

/// Bytes that all tensors of this process take up, on all of its devices, of all ranks that are its threads.
inline std::size_t live_bytes() {
  std::size_t sum = 0;
  for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device)
    sum += static_cast<std::size_t>(
        c10::cuda::CUDACachingAllocator::getDeviceStats(device).allocated_bytes[0].current);
  return sum;
}
/// The most on each device since `restart_peak`, added up.
inline std::size_t peak_bytes() {
  std::size_t sum = 0;
  for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device)
    sum += static_cast<std::size_t>(
        c10::cuda::CUDACachingAllocator::getDeviceStats(device).allocated_bytes[0].peak);
  return sum;
}
inline void restart_peak() {
  for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device)
    c10::cuda::CUDACachingAllocator::resetPeakStats(device);
}

} // namespace torch_cuda
} // namespace v0
} // namespace stretto
