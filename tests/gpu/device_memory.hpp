#pragma once

#include <stretto/adapters/cuda/error.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace test {

/// Memory of the GPU, not initialised.
class device_bytes {
public:
  explicit device_bytes(std::size_t bytes) : bytes_(bytes) {
    // Never small, so that other processes may find it.
    if (bytes > 0)
      stretto::cuda::check(cudaMalloc(&data_, (std::max)(bytes + 16, std::size_t{2} << 20)), "cudaMalloc");
  }
  explicit device_bytes(std::vector<unsigned char> const& from) : device_bytes(from.size()) {
    if (bytes_ == 0) return;
    // NCCL reads whole words, beyond an end that is none.
    stretto::cuda::check(cudaMemset(data_, 0, bytes_ + 16 - bytes_ % 16), "cudaMemset");
    stretto::cuda::check(cudaMemcpy(data_, from.data(), bytes_, cudaMemcpyHostToDevice), "cudaMemcpy");
    // Only then it is there for other streams.
    stretto::cuda::check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
  }
  device_bytes(device_bytes&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  device_bytes& operator=(device_bytes&&) = delete;
  ~device_bytes() { static_cast<void>(cudaFree(data_)); }

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t size() const { return bytes_; }
  std::vector<unsigned char> to_host() const {
    std::vector<unsigned char> to(bytes_);
    if (bytes_ > 0)
      stretto::cuda::check(cudaMemcpy(to.data(), data_, bytes_, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return to;
  }

private:
  void* data_ = nullptr;
  std::size_t bytes_;
};

} // namespace test
