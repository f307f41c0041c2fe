#pragma once

#include <stretto/adapters/cuda/driver.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// Device memory of one process, as another may find it.
struct ipc_place {
  cudaIpcMemHandle_t handle{};
  std::uint64_t allocation = 0; ///< of its process, never used again
  std::uint64_t base = 0; ///< in its process
  std::size_t offset = 0;
};

/// Tells others where device memory of this process lies.
class ipc_exporter {
public:
  ipc_place place_of(void* memory) {
    ipc_place found;
    CUdeviceptr base = 0;
    std::size_t bytes = 0;
    auto const address = reinterpret_cast<CUdeviceptr>(memory);
    check_driver(range_(&base, &bytes, address), "cuMemGetAddressRange");
    // Smaller ones share a block, and a handle is of the whole block.
    if (bytes < smallest) refuse("an allocation of " + std::to_string(bytes) + " bytes");
    unsigned long long number = 0;
    check_driver(attribute_(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, address), "cuPointerGetAttribute");
    found.allocation = number;
    found.base = base;
    found.offset = static_cast<std::size_t>(address - base);
    auto const [known, is_new] = handles_.try_emplace(std::pair(found.allocation, found.base));
    if (is_new) {
      auto const result = cudaIpcGetMemHandle(&known->second, reinterpret_cast<void*>(base));
      if (result != cudaSuccess) {
        handles_.erase(known);
        static_cast<void>(cudaGetLastError());
        refuse(cudaGetErrorString(result));
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
  static constexpr std::size_t smallest = std::size_t{2} << 20;

  [[noreturn]] static void refuse(std::string const& what) {
    throw std::runtime_error(
        "processes reach each other's memory of cudaMalloc in pieces of 2 MiB or more, as tensor libraries "
        "take it, and this is " +
        what + " (for torch leave expandable_segments and cudaMallocAsync out of its allocator's settings)");
  }

  std::map<std::pair<std::uint64_t, std::uint64_t>, cudaIpcMemHandle_t> handles_;
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
    auto const [known, is_new] = opened_.try_emplace(std::tuple(rank, place.allocation, place.base), nullptr);
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
  std::map<std::tuple<std::size_t, std::uint64_t, std::uint64_t>, void*> opened_;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
