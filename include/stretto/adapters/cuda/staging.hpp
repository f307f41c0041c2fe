#pragma once

#include <stretto/adapters/cuda/flag_room.hpp>
#include <stretto/adapters/cuda/handles.hpp>

#include <cstddef>
#include <memory>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// Host buffers of one rank, two used in turn: a peer may still fetch from one while the other is filled. Calls that are
/// captured have two of their own, since replays may use them at any time. All ranks of an exchange own it, since peers
/// fetch from it.
struct staging {
  static constexpr std::size_t most_chunks = 8;

  struct buffer {
    std::unique_ptr<pinned_buffer> memory = std::make_unique<pinned_buffer>();
    edge sent[most_chunks]; ///< the chunk lies in the buffer
    cudaEvent_t handles[most_chunks]{}; ///< of `sent`, for the peers
    edge fetched; ///< what came in with the call that used this buffer is there
    std::vector<cudaEvent_t> readers; ///< of the peers that fetch from here
  };
  buffer buffers[2], captured[2];
  /// Where graphs point that were captured before a buffer had to grow.
  std::vector<std::unique_ptr<pinned_buffer>> outgrown;
  /// That of rank 0 serves all: whether a buffer may be filled, and which chunks of it have come.
  std::shared_ptr<flag_room> flags;

  static constexpr std::size_t is_free(std::size_t turn) { return turn; }
  static constexpr std::size_t has_sent(std::size_t turn, std::size_t chunk) {
    return 2 + turn * most_chunks + chunk;
  }

  explicit staging(std::size_t ranks) : flags(std::make_shared<flag_room>(ranks, has_sent(2, 0), 2)) {
    for (auto& each : buffers)
      for (std::size_t k = 0; k < most_chunks; ++k) each.handles[k] = each.sent[k].made();
  }
  staging(staging const&) = delete;
  staging& operator=(staging const&) = delete;
  ~staging() {
    // Copies into the buffers may still run on a stream that is not ours.
    for (auto& each : buffers)
      for (auto const chunk : each.handles) static_cast<void>(cudaEventSynchronize(chunk));
  }
};

/// What one rank tells another in one call: where the block for it lies and which events make it complete.
struct posted_block {
  std::byte const* buffer;
  std::size_t first, bytes; ///< within the buffer
  std::size_t chunk; ///< its size
  cudaEvent_t const* sent; ///< one for each chunk
  cudaEvent_t fetched; ///< recorded when its poster has fetched what it gets in this call
  bool capturing;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
