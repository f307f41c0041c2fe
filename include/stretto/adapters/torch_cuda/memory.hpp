#pragma once

#include <stretto/detail/cxx20.hpp>

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>

#include <cstddef>
#include <cstdint>

namespace stretto {
inline namespace v0 {
namespace torch_cuda {

namespace detail {

/// Of this process, on all of its devices, of all ranks that are its threads.
template <class Of> std::size_t sum_over_devices(Of const& of) {
  std::int64_t sum = 0;
  for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device)
    sum += of(c10::cuda::CUDACachingAllocator::getDeviceStats(device));
  return static_cast<std::size_t>(sum);
}

} // namespace detail

/// Bytes that all tensors of this process take up, on all of its devices, of all ranks that are its threads.
inline std::size_t live_bytes() {
  return detail::sum_over_devices([](auto const& stats) { return stats.allocated_bytes[0].current; });
}
/// The same without what the allocator rounds sizes up by.
inline std::size_t requested_bytes() {
  return detail::sum_over_devices([](auto const& stats) { return stats.requested_bytes[0].current; });
}
/// What torch has taken from the devices, whether or not tensors lie there.
inline std::size_t reserved_bytes() {
  return detail::sum_over_devices([](auto const& stats) { return stats.reserved_bytes[0].current; });
}
/// The most on each device since `restart_peak`, added up.
inline std::size_t peak_bytes() {
  return detail::sum_over_devices([](auto const& stats) { return stats.allocated_bytes[0].peak; });
}
inline void restart_peak() {
  for (c10::DeviceIndex device = 0; device < c10::cuda::device_count(); ++device)
    c10::cuda::CUDACachingAllocator::resetPeakStats(device);
}

} // namespace torch_cuda
} // namespace v0
} // namespace stretto
