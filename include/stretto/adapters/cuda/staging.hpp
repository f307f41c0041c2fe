#pragma once

#include <stretto/adapters/cuda/handles.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// Two host buffers of one rank, used in turn: a peer may still fetch from one while the other is filled. All ranks of an
/// exchange own it, since peers fetch from it.
struct staging {
  static constexpr std::size_t most_chunks = 64;

  struct buffer {
    std::unique_ptr<pinned_buffer> memory = std::make_unique<pinned_buffer>();
    edge sent[most_chunks]; ///< the chunk lies in the buffer
    cudaEvent_t handles[most_chunks]; ///< of `sent`, for the peers
    edge fetched; ///< what came in with the call that used this buffer is there
    std::vector<cudaEvent_t> readers; ///< of the peers that fetch from here
    bool is_in_graph = false; ///< a graph may use the memory at any time
  };
  buffer buffers[2];
  /// What graphs use that were captured before a buffer had to grow.
  std::vector<std::unique_ptr<pinned_buffer>> outgrown;

  staging() {
    for (auto& each : buffers)
      for (std::size_t k = 0; k < most_chunks; ++k) each.handles[k] = each.sent[k].made();
  }
  staging(staging const&) = delete;
  staging& operator=(staging const&) = delete;
  ~staging() {
    // Copies into the buffers may still run on a stream that is not ours.
    for (auto& each : buffers)
      for (auto const chunk : each.handles) static_cast<void>(cudaEventSynchronize(chunk));
    // Events that a capture recorded last cannot be waited for, and need not be.
    static_cast<void>(cudaGetLastError());
  }
};

/// What one rank tells another in one call: where the block for it lies and which events make it complete.
struct posted_block {
  std::byte const* buffer;
  std::size_t first, bytes; ///< within the buffer
  std::size_t chunk; ///< its size
  cudaEvent_t const* sent; ///< one for each chunk
  cudaEvent_t fetched; ///< recorded when its poster has fetched what it gets in this call
  unsigned long long capture; ///< that the call is part of
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
