#pragma once

#include <stretto/adapters/cuda/blocks.hpp>
#include <stretto/adapters/cuda/handles.hpp>

#include <cstddef>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// The rows that a rank keeps: copied beside what its stream does for other ranks and, however long these take to come, at once.
class own_rows {
public:
  /// Behind `begun`.
  void copy(void* to, void const* from, std::size_t bytes, edge const& begun) {
    is_copying_ = false;
    copy_more(to, from, bytes, begun);
  }
  /// In the same call.
  void copy_more(void* to, void const* from, std::size_t bytes, edge const& begun) {
    if (bytes == 0) return;
    begun.wait(beside_.get());
    copy_bytes(to, from, bytes, beside_.get(), cudaMemcpyDeviceToDevice);
    is_copying_ = true;
    copied_.record(beside_.get());
  }
  /// What `here` does next runs behind the copy.
  void join(cudaStream_t here) {
    if (std::exchange(is_copying_, false)) copied_.wait(here);
  }
  /// For a call that has failed: who gives its memory back behind `here` may do so all the same.
  void try_join(cudaStream_t here) noexcept {
    if (std::exchange(is_copying_, false)) copied_.try_wait(here);
  }

private:
  bool is_copying_ = false;
  edge copied_;
  // Last, so that nothing runs on it any more when the rest goes.
  stream beside_{urgency::high};
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
