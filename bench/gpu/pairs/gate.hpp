#pragma once

#include <stretto/adapters/cuda/flags.hpp>

#include <atomic>

namespace layer_pairs {

/// Holds the streams of all ranks until all have issued their step, so that the time on the GPU has no host time in it.
class stream_gate {
public:
  explicit stream_gate(int ranks) : ranks_(ranks) { open(); }

  /// By one rank, while no stream waits.
  void close() {
    missing_ = ranks_;
    flag_.set(0, 0);
  }
  void hold(cudaStream_t stream) const { stretto::cuda::flag_ops().wait_for(flag_[0], 1).issue(stream); }
  /// The last rank to come opens it.
  void arrive() {
    if (--missing_ == 0) open();
  }
  void open() { flag_.set(0, 1); }

private:
  int ranks_;
  stretto::cuda::host_flags flag_{1};
  std::atomic<int> missing_{0};
};

} // namespace layer_pairs
