#pragma once

#include <stretto/adapters/cuda/driver.hpp>
#include <stretto/adapters/cuda/handles.hpp>

#include <cudaTypedefs.h>

#include <cstddef>
#include <cstdint>
#include <utility>

namespace layer_pairs {

namespace cuda = stretto::cuda;
using cuda::detail::check_driver;
using cuda::detail::driver_call;

/// Memory of the GPU, made once: nothing allocates in a step.
class device_memory {
public:
  explicit device_memory(std::size_t bytes) : bytes_(bytes) {
    cuda::check(cudaMalloc(&data_, bytes), "cudaMalloc");
  }
  device_memory(device_memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
  device_memory& operator=(device_memory&&) = delete;
  ~device_memory() { static_cast<void>(cudaFree(data_)); }

  void* data() const noexcept { return data_; }
  std::size_t bytes() const noexcept { return bytes_; }

private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

/// Two kernels, as text that the driver compiles: random numbers, and sums that tell bytes and their places apart. One object
/// for each rank, on the rank's thread and device.
class memory_kernels {
public:
  memory_kernels()
      : launch_(driver_call<PFN_cuLaunchKernel_v4000>("cuLaunchKernel", 4000)), sum_(sizeof(std::uint64_t)) {
    auto const load = driver_call<PFN_cuModuleLoadData_v2000>("cuModuleLoadData", 2000);
    auto const get = driver_call<PFN_cuModuleGetFunction_v2000>("cuModuleGetFunction", 2000);
    CUmodule all{};
    check_driver(load(&all, text), "cuModuleLoadData");
    check_driver(get(&fill_, all, "fill_bf16"), "cuModuleGetFunction");
    check_driver(get(&add_, all, "add_words"), "cuModuleGetFunction");
  }

  /// bf16 numbers with equal chances between -1 and 1.
  void randomize(void* to, std::size_t bytes, unsigned seed, cudaStream_t on) {
    auto address = reinterpret_cast<CUdeviceptr>(to);
    std::uint64_t count = bytes / 2;
    void* arguments[] = {&address, &count, &seed};
    check_driver(launch_(fill_, 1024, 1, 1, 256, 1, 1, 0, on, arguments, nullptr), "cuLaunchKernel");
  }

  void clear_sum(cudaStream_t on) {
    cuda::check(cudaMemsetAsync(sum_.data(), 0, sum_.bytes(), on), "cudaMemsetAsync");
  }
  /// Words of eight bytes times odd numbers that belong to their places, modulo 2^64: no order of additions changes it.
  void add(void const* data, std::size_t bytes, cudaStream_t on) {
    auto address = reinterpret_cast<CUdeviceptr>(data), result = reinterpret_cast<CUdeviceptr>(sum_.data());
    std::uint64_t count = bytes / 8;
    void* arguments[] = {&address, &count, &result};
    check_driver(launch_(add_, 1024, 1, 1, 256, 1, 1, 0, on, arguments, nullptr), "cuLaunchKernel");
  }
  /// Returns when it is there.
  std::uint64_t sum(cudaStream_t on) {
    std::uint64_t result = 0;
    cuda::check(cudaMemcpyAsync(&result, sum_.data(), sizeof result, cudaMemcpyDeviceToHost, on),
                "cudaMemcpyAsync");
    cuda::check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
    return result;
  }

private:
  static constexpr char const* text = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry fill_bf16(.param .u64 to, .param .u64 count, .param .u32 seed)
{
  .reg .pred %p;
  .reg .b16 %h;
  .reg .f32 %f;
  .reg .b32 %r<8>;
  .reg .b64 %rd<8>;
  ld.param.u64 %rd1, [to];
  ld.param.u64 %rd2, [count];
  ld.param.u32 %r1, [seed];
  cvta.to.global.u64 %rd1, %rd1;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  cvt.u64.u32 %rd3, %r5;
  mov.u32 %r6, %nctaid.x;
  mul.lo.u32 %r6, %r6, %r3;
  cvt.u64.u32 %rd4, %r6;
more:
  setp.ge.u64 %p, %rd3, %rd2;
  @%p bra done;
  cvt.u32.u64 %r7, %rd3;
  mul.lo.u32 %r7, %r7, 2654435761;
  xor.b32 %r7, %r7, %r1;
  shr.u32 %r5, %r7, 15;
  xor.b32 %r7, %r7, %r5;
  mul.lo.u32 %r7, %r7, 2246822519;
  shr.u32 %r5, %r7, 13;
  xor.b32 %r7, %r7, %r5;
  mul.lo.u32 %r7, %r7, 3266489917;
  shr.u32 %r5, %r7, 16;
  xor.b32 %r7, %r7, %r5;
  cvt.rn.f32.s32 %f, %r7;
  mul.f32 %f, %f, 0f30000000;
  mov.b32 %r5, %f;
  shr.u32 %r5, %r5, 16;
  cvt.u16.u32 %h, %r5;
  shl.b64 %rd5, %rd3, 1;
  add.u64 %rd5, %rd5, %rd1;
  st.global.u16 [%rd5], %h;
  add.u64 %rd3, %rd3, %rd4;
  bra more;
done:
  ret;
}
.visible .entry add_words(.param .u64 from, .param .u64 count, .param .u64 sum)
{
  .reg .pred %p;
  .reg .b32 %r<8>;
  .reg .b64 %rd<10>;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [count];
  ld.param.u64 %rd8, [sum];
  cvta.to.global.u64 %rd1, %rd1;
  cvta.to.global.u64 %rd8, %rd8;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, %ntid.x;
  mov.u32 %r4, %tid.x;
  mad.lo.u32 %r5, %r2, %r3, %r4;
  cvt.u64.u32 %rd3, %r5;
  mov.u32 %r6, %nctaid.x;
  mul.lo.u32 %r6, %r6, %r3;
  cvt.u64.u32 %rd4, %r6;
  mov.u64 %rd7, 0;
more:
  setp.ge.u64 %p, %rd3, %rd2;
  @%p bra done;
  shl.b64 %rd5, %rd3, 3;
  add.u64 %rd5, %rd5, %rd1;
  ld.global.u64 %rd5, [%rd5];
  mul.lo.u64 %rd6, %rd3, 0x9E3779B97F4A7C15;
  or.b64 %rd6, %rd6, 1;
  mad.lo.u64 %rd7, %rd5, %rd6, %rd7;
  add.u64 %rd3, %rd3, %rd4;
  bra more;
done:
  red.global.add.u64 [%rd8], %rd7;
  ret;
}
)";
  PFN_cuLaunchKernel_v4000 launch_;
  CUfunction fill_{}, add_{};
  device_memory sum_;
};

} // namespace layer_pairs
