#pragma once

#include <stretto/adapters/nccl/stream.hpp>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// Memory that messages arrive in, of one rank. Who holds a tensor last drops it on the lane that has seen all of its
/// readers, which is not the lane that received it: so the next receive into its memory waits for that lane.
template <class Tensor, class Head> class landings {
public:
  struct place {
    Tensor base{};
    Head head{};
    mark left{};
  };

  /// Memory of that description, behind whose `left` it may be written; null: there is none.
  std::shared_ptr<place> take(Head const& head) {
    std::lock_guard const lock(mutex_);
    for (auto& each : free_)
      if (each->head.is_like(head)) {
        auto found = std::exchange(each, free_.back());
        free_.pop_back();
        return found;
      }
    return nullptr;
  }
  /// Called from where a tensor is dropped, so it must not throw: what cannot be given back is left out.
  void give_back(std::shared_ptr<place> const& which, cudaStream_t here) noexcept {
    try {
      which->left.record(here);
      std::lock_guard const lock(mutex_);
      free_.push_back(which);
    } catch (...) {
    }
  }

private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<place>> free_;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
