#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/blocks.hpp>
#include <stretto/adapters/cuda/capture.hpp>
#include <stretto/adapters/cuda/exchange_options.hpp>
#include <stretto/adapters/cuda/follow.hpp>
#include <stretto/adapters/cuda/handles.hpp>
#include <stretto/detail/landings.hpp>
#include <stretto/message_tensors.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// What the host of a sender tells that of the receiver. `Lent` says where a copy of the elements lies and what it waits for.
template <class Lent> struct basic_letter {
  bool is_empty = true;
  tensor_head head{};
  Lent lent{};
};

namespace detail {

/// Messages of device memory: a `peer_adapter`. `Letters` is a `peer_adapter` over the hosts of the same ranks, whose tensors
/// are letters; it brings order, deadlines and failures. What is sent is copied on the current stream (`Current`), so that a
/// send never waits for its receive and its storage may go back right behind it; the receiver fetches the copy by copy engines on
/// its current stream into memory of its own. `Lender` is the part that differs between threads and processes:
/// - `forget_fetched()`: drops the copies that have been fetched.
/// - `lend(peer, copy, data, source, here)`: the copy that is written on `here`, as the receiver finds it; a `source` that is not
///   empty stays until it is copied.
/// - `fetch(lent, here, copy)`: calls `copy(data)`, which issues on `here`, behind the lender's copy.
template <message_tensors Tensors, peer_adapter Letters, class Lender, stream_follower Current>
class message_copies {
public:
  using tensor = typename Tensors::tensor;
  using letter_type = basic_letter<typename Lender::lent>;

  template <class... OfLender>
  message_copies(Letters& letters, Tensors tensors, Current current, std::function<void(bool)> waits,
                 OfLender&&... of_lender)
      : letters_(letters), tensors_(std::move(tensors)), current_(std::move(current)),
        waits_(std::move(waits)), lender_(std::forward<OfLender>(of_lender)...) {}
  message_copies(message_copies const&) = delete;
  message_copies& operator=(message_copies const&) = delete;

  void send(message const& about, tensor const& content) {
    letter_type made;
    made.is_empty = tensors_.is_empty(content);
    if (!made.is_empty) {
      tensor const source = tensors_.contiguous(content);
      tensors_.describe(source, made.head);
      if (made.head.bytes > 0) {
        cudaStream_t const here = current_.current();
        if (!is_capturing(here)) lender_.forget_fetched();
        tensor copy = tensors_.make(made.head);
        void* const data = tensors_.data(copy);
        copy_bytes(data, tensors_.data(source), made.head.bytes, here);
        // A gradient is dropped by its sender at once, and its memory belongs to another lane.
        made.lent = lender_.lend(about.peer, std::move(copy), data, about.gradient ? source : tensor{}, here);
      }
    }
    letters_.send(about, made);
  }

  tensor receive(message const& about) {
    letter_type const came = [&] {
      waiting_for_ranks const here_too(waits_);
      return letters_.receive(about);
    }();
    if (came.is_empty) return tensor{};
    if (came.head.bytes == 0) return tensors_.make(came.head);
    cudaStream_t const here = current_.current();
    tensor made =
        landings_->land(tensors_, came.head, here, capture_of(here), [current = current_](auto& place) {
          cudaStream_t const last = current.current();
          place.capture = capture_of(last);
          place.left.record(last);
        });
    lender_.fetch(came.lent, here,
                  [&](void const* from) { copy_bytes(tensors_.data(made), from, came.head.bytes, here); });
    return made;
  }

private:
  using landings = stretto::detail::landings<tensor, tensor_head, edge>;

  Letters& letters_;
  Tensors tensors_;
  Current current_;
  std::function<void(bool)> waits_;
  std::shared_ptr<landings> landings_ = std::make_shared<landings>();
  Lender lender_;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
