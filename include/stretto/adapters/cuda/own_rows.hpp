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
  /// Behind `begun`, the same in all copies of one call, which ends by joining them.
  void copy(void* to, void const* from, std::size_t bytes, edge const& begun) {
    if (bytes == 0) return;
    if (!is_copying_) {
      static_cast<void>(copied_.made());
      begun.wait(beside_.get());
    }
    is_copying_ = true;
    copy_bytes(to, from, bytes, beside_.get(), cudaMemcpyDeviceToDevice);
  }
  /// What `here` does next runs behind the copies.
  void join(cudaStream_t here) {
    if (!std::exchange(is_copying_, false)) return;
    copied_.record(beside_.get());
    copied_.wait(here);
  }
  /// For a call that has failed: who gives its memory back behind `here` may do so all the same.
  void try_join(cudaStream_t here) noexcept {
    if (!std::exchange(is_copying_, false)) return;
    copied_.try_record(beside_.get());
    copied_.try_wait(here);
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
