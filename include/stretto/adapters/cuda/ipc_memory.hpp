#pragma once

#include <stretto/adapters/cuda/driver.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// Device memory of one process, as another may find it.
struct ipc_place {
  cudaIpcMemHandle_t handle{};
  std::uint64_t allocation = 0; ///< of its process, never used again
  std::size_t offset = 0;
};

/// Tells others where device memory of this process lies.
class ipc_exporter {
public:
  ipc_place place_of(void* memory) {
    ipc_place found;
    CUdeviceptr base = 0;
    auto const address = reinterpret_cast<CUdeviceptr>(memory);
    check_driver(range_(&base, nullptr, address), "cuMemGetAddressRange");
    unsigned long long number = 0;
    check_driver(attribute_(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, address), "cuPointerGetAttribute");
    found.allocation = number;
    found.offset = static_cast<std::size_t>(address - base);
    auto const [known, is_new] = handles_.try_emplace(number);
    if (is_new) {
      auto const result = cudaIpcGetMemHandle(&known->second, reinterpret_cast<void*>(base));
      if (result != cudaSuccess) {
        handles_.erase(known);
        static_cast<void>(cudaGetLastError());
        throw std::runtime_error(
            std::string("processes can push into memory of cudaMalloc only, and this is none: ") +
            cudaGetErrorString(result) +
            " (for torch leave expandable_segments and cudaMallocAsync out of its allocator's settings)");
      }
    }
    found.handle = known->second;
    return found;
  }

private:
  using range_call = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);
  using attribute_call = CUresult (*)(void*, CUpointer_attribute, CUdeviceptr);
  range_call range_ = driver_call<range_call>("cuMemGetAddressRange", 12000);
  attribute_call attribute_ = driver_call<attribute_call>("cuPointerGetAttribute", 12000);
  std::map<std::uint64_t, cudaIpcMemHandle_t> handles_;
};

/// Finds memory of other processes. What was opened stays open: its owner may free it, and the memory goes when this goes.
class ipc_importer {
public:
  ipc_importer() = default;
  ipc_importer(ipc_importer const&) = delete;
  ipc_importer& operator=(ipc_importer const&) = delete;
  ~ipc_importer() {
    for (auto const& [key, base] : opened_) static_cast<void>(cudaIpcCloseMemHandle(base));
  }

  std::byte* address_of(std::size_t rank, ipc_place const& place) {
    auto const [known, is_new] = opened_.try_emplace(std::pair(rank, place.allocation), nullptr);
    if (is_new) {
      auto const result = cudaIpcOpenMemHandle(&known->second, place.handle, cudaIpcMemLazyEnablePeerAccess);
      if (result != cudaSuccess) {
        opened_.erase(known);
        check(result, "cudaIpcOpenMemHandle");
      }
    }
    return static_cast<std::byte*>(known->second) + place.offset;
  }

private:
  std::map<std::pair<std::size_t, std::uint64_t>, void*> opened_;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
