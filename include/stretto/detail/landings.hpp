#pragma once

#include <stretto/detail/cxx20.hpp>

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
template <class Tensor, class Head, class Mark>
class landings : public std::enable_shared_from_this<landings<Tensor, Head, Mark>> {
public:
  /// A tensor of that description, for what arrives on `stream` from now on; `capture`: that the stream is part of, 0: none.
  /// `leave(place)` records `left` where the tensor is dropped last.
  template <class Tensors, class Stream, class Leave>
  Tensor land(Tensors& tensors, Head const& head, Stream stream, unsigned long long capture, Leave leave) {
    auto found = take(head, capture);
    if (found) {
      found->left.wait(stream);
    } else {
      found = std::make_shared<place>();
      found->base = tensors.make(head);
      found->head = head;
    }
    return tensors.lend(found->base, [to = this->shared_from_this(), found, leave = std::move(leave)] {
      to->give_back(found, leave);
    });
  }

private:
  struct place {
    Tensor base{};
    Head head{};
    Mark left{};
    unsigned long long capture = 0; ///< that `left` is part of
  };

  /// Behind whose `left` it may be written; null: there is none.
  std::shared_ptr<place> take(Head const& head, unsigned long long capture) {
    std::lock_guard const lock(mutex_);
    for (auto& each : free_)
      if (each->head == head && each->capture == capture) {
        auto found = std::exchange(each, free_.back());
        free_.pop_back();
        return found;
      }
    return nullptr;
  }
  /// Called from where a tensor is dropped, so it must not throw: what cannot be given back is left out.
  template <class Leave> void give_back(std::shared_ptr<place> const& which, Leave const& leave) noexcept {
    try {
      leave(*which);
      std::lock_guard const lock(mutex_);
      free_.push_back(which);
    } catch (...) {
    }
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<place>> free_;
};

} // namespace detail
} // namespace v0
} // namespace stretto
