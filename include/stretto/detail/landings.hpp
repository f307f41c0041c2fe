#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace detail {

/// Memory that messages arrive in, of one rank. Who holds a tensor last drops it on the lane that has seen all of its
/// readers, which is not the lane that received it: so the next receive into its memory waits for that lane. `Mark` is an
/// event, `Head` describes a tensor.
template <class Tensor, class Head, class Mark> class landings {
public:
  struct place {
    Tensor base{};
    Head head{};
    Mark left{};
    unsigned long long capture = 0; ///< that `left` is part of; 0: none
  };

  /// Memory of that description, behind whose `left` it may be written; null: there is none.
  std::shared_ptr<place> take(Head const& head, unsigned long long capture = 0) {
    std::lock_guard const lock(mutex_);
    for (auto& each : free_)
      if (each->head == head && each->capture == capture) {
        auto found = std::exchange(each, free_.back());
        free_.pop_back();
        return found;
      }
    return nullptr;
  }
  /// `leave(place)` records `left`. Called from where a tensor is dropped, so it must not throw: what cannot be given back is
  /// left out.
  template <class Leave> void give_back(std::shared_ptr<place> const& which, Leave const& leave) noexcept {
    try {
      leave(*which);
      std::lock_guard const lock(mutex_);
      free_.push_back(which);
    } catch (...) {
    }
  }

private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<place>> free_;
};

} // namespace detail
} // namespace v0
} // namespace stretto
