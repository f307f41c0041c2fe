#pragma once

#include <stretto/adapters/cuda/driver.hpp>

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// Writes of flags and waits for flags, in this order on one stream by one call of the driver. A flag is a 32-bit word that
/// the stream's GPU reaches. Unlike an event, a wait may be issued before the write that ends it, so streams of several
/// threads and of several GPUs can wait for each other; and nothing but a write ends it.
///
/// On one GPU a wait may keep what another stream has issued later from running, where the two share a hardware queue:
/// more queues help, `CUDA_DEVICE_MAX_CONNECTIONS`. Two graphs on one GPU that wait for each other stay stuck all the same
/// (measured); capture them into one, where events serve.
class flag_ops {
public:
  /// What the stream did before is seen by whoever sees the value.
  flag_ops& write(std::uint32_t* flag, std::uint32_t value) {
    auto& made = next();
    made.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    made.writeValue.address = reinterpret_cast<CUdeviceptr>(flag);
    made.writeValue.value = value;
    made.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;
    return *this;
  }
  flag_ops& wait_for(std::uint32_t* flag, std::uint32_t value) {
    return wait(flag, value, CU_STREAM_WAIT_VALUE_EQ);
  }
  /// For counters, which may go round.
  flag_ops& wait_for_at_least(std::uint32_t* flag, std::uint32_t value) {
    return wait(flag, value, CU_STREAM_WAIT_VALUE_GEQ);
  }

  /// Afterwards there are none.
  void issue(cudaStream_t on) {
    for (std::size_t begin = 0; begin < used_; begin += most_at_once) {
      auto const count = (std::min)(used_ - begin, most_at_once);
      detail::check_driver(driver()(on, static_cast<unsigned>(count), ops_.data() + begin, 0),
                           "cuStreamBatchMemOp");
    }
    used_ = 0;
  }

private:
  using batch_call = CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned);
  static constexpr std::size_t most_at_once = 128;

  static batch_call driver() {
    static auto const found = detail::driver_call<batch_call>("cuStreamBatchMemOp", 12000);
    return found;
  }

  flag_ops& wait(std::uint32_t* flag, std::uint32_t value, unsigned how) {
    auto& made = next();
    made.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    made.waitValue.address = reinterpret_cast<CUdeviceptr>(flag);
    made.waitValue.value = value;
    made.waitValue.flags = how;
    return *this;
  }
  CUstreamBatchMemOpParams& next() {
    if (used_ == ops_.size()) ops_.emplace_back();
    ops_[used_] = {};
    return ops_[used_++];
  }

  std::vector<CUstreamBatchMemOpParams> ops_;
  std::size_t used_ = 0;
};

/// Flags in host memory, all 0, which streams of every GPU of the process may use, and the host: so it can release streams
/// that wait, whatever hangs on the GPU.
class host_flags {
public:
  explicit host_flags(std::size_t count) : count_(count) {
    check(cudaHostAlloc(&memory_, (std::max)(count, std::size_t{1}) * stride,
                        cudaHostAllocPortable | cudaHostAllocMapped),
          "cudaHostAlloc");
    for (std::size_t i = 0; i < count; ++i) set(i, 0);
  }
  host_flags(host_flags const&) = delete;
  host_flags& operator=(host_flags const&) = delete;
  ~host_flags() { static_cast<void>(cudaFreeHost(memory_)); }

  std::size_t size() const noexcept { return count_; }
  /// For streams. With unified addressing it is the host's own address too.
  std::uint32_t* operator[](std::size_t i) const noexcept {
    return reinterpret_cast<std::uint32_t*>(static_cast<std::byte*>(memory_) + i * stride);
  }
  void set(std::size_t i, std::uint32_t value) const noexcept {
    std::atomic_ref<std::uint32_t>(*(*this)[i]).store(value, std::memory_order_release);
  }
  std::uint32_t get(std::size_t i) const noexcept {
    return std::atomic_ref<std::uint32_t>(*(*this)[i]).load(std::memory_order_acquire);
  }

private:
  /// Flags of different writers lie on lines of their own.
  static constexpr std::size_t stride = 128;
  void* memory_ = nullptr;
  std::size_t count_;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
