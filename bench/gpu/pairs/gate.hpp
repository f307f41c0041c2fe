#pragma once

#include "driver.hpp"

#include <atomic>
#include <cstdint>

namespace layer_pairs {

/// Holds the streams of all ranks until all have issued their step, so that the time on the GPU has no host time in it.
class stream_gate {
public:
  explicit stream_gate(int ranks)
      : ranks_(ranks), wait_(driver_function<PFN_cuStreamWaitValue32_v11070>("cuStreamWaitValue32", 11070)) {
    void* word = nullptr;
    stretto::cuda::check(
        cudaHostAlloc(&word, sizeof(std::uint32_t), cudaHostAllocPortable | cudaHostAllocMapped),
        "cudaHostAlloc");
    word_ = static_cast<std::uint32_t*>(word);
    open();
  }
  stream_gate(stream_gate const&) = delete;
  stream_gate& operator=(stream_gate const&) = delete;
  ~stream_gate() { static_cast<void>(cudaFreeHost(word_)); }

  /// By one rank, while no stream waits.
  void close() {
    missing_ = ranks_;
    std::atomic_ref(*word_).store(0);
  }
  void hold(cudaStream_t stream) const {
    check_driver(wait_(stream, reinterpret_cast<CUdeviceptr>(word_), 1, CU_STREAM_WAIT_VALUE_EQ),
                 "cuStreamWaitValue32");
  }
  /// The last rank to come opens it.
  void arrive() {
    if (--missing_ == 0) open();
  }
  void open() { std::atomic_ref(*word_).store(1); }

private:
  int ranks_;
  PFN_cuStreamWaitValue32_v11070 wait_;
  std::uint32_t* word_ = nullptr;
  std::atomic<int> missing_{0};
};

} // namespace layer_pairs
