#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/capture.hpp>
#include <stretto/adapters/cuda/exchange_options.hpp>
#include <stretto/adapters/cuda/follow.hpp>
#include <stretto/adapters/cuda/handles.hpp>
#include <stretto/adapters/cuda/reach.hpp>
#include <stretto/detail/landings.hpp>
#include <stretto/message_tensors.hpp>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// A copy of what one rank sends, for the other to fetch. It belongs to the sender's lane, so it goes back only when the
/// fetch is over.
template <class Tensor> struct lent_tensor {
  Tensor copy{};
  /// A gradient, which its sender drops at once: its memory belongs to another lane, and stays until it is copied.
  Tensor source{};
  void* data = nullptr; ///< null: there are no elements
  tensor_head head{};
  bool is_empty = false;
  int gpu = 0;
  edge sent; ///< behind it the copy is there
  edge taken; ///< behind it the copy has been fetched; to be looked at once `is_taken`
  std::atomic<bool> is_taken{false}, is_left{false};
};

/// What travels between the hosts: the tensor of the `Letters` of `peers`.
template <class Tensor> using letter = std::shared_ptr<lent_tensor<Tensor>>;

/// Messages between pipeline ranks that are threads of one process, of tensors in memory of one GPU or of one GPU each: a
/// `peer_adapter`. `Letters` is a `peer_adapter` over the host threads of the same ranks whose tensors are letters, say
/// `host::peers<letter<...>>`; it brings order, deadlines and failures.
///
/// A send copies on the current stream (`Current`), so that the storage may go back right behind it, and never waits for
/// its receive. A receive waits on the host until the send has been issued, not until it is done, and fetches by copy
/// engines on the current stream into a tensor of its own.
///
/// Messages may be part of a graph if the streams of all ranks are part of one capture; what they copy stays until this
/// goes.
template <message_tensors Tensors, peer_adapter Letters, stream_follower Current = thread_stream>
class peers {
public:
  using tensor = typename Tensors::tensor;

  /// `waits` as in `exchange_options`.
  explicit peers(Letters& letters, Tensors tensors = {}, Current current = {},
                 std::function<void(bool)> waits = {})
      : letters_(letters), tensors_(std::move(tensors)), current_(std::move(current)),
        waits_(std::move(waits)) {
    check(cudaGetDevice(&gpu_), "cudaGetDevice");
  }
  peers(peers const&) = delete;
  peers& operator=(peers const&) = delete;
  /// Letters that have not been taken live on with whoever has them.
  ~peers() {
    for (auto const& [peer, sent] : sent_)
      for (auto const& each : sent) {
        // Either we see that it is taken, or the taker sees that we have left.
        each->is_left = true;
        if (each->is_taken) static_cast<void>(cudaEventSynchronize(each->taken.get()));
      }
    static_cast<void>(cudaGetLastError());
  }

  void send(message const& about, tensor const& content) {
    cudaStream_t const here = current_.current();
    auto const made =
        is_capturing(here) ? captured_.emplace_back(std::make_shared<lent>()) : new_letter(about.peer);
    made->is_empty = tensors_.is_empty(content);
    if (!made->is_empty) {
      tensor const source = tensors_.contiguous(content);
      tensors_.describe(source, made->head);
      made->copy = tensors_.make(made->head);
      made->gpu = gpu_;
      if (made->head.bytes > 0) {
        made->data = tensors_.data(made->copy);
        check(cudaMemcpyAsync(made->data, tensors_.data(source), made->head.bytes, cudaMemcpyDeviceToDevice,
                              here),
              "cudaMemcpyAsync");
      }
      made->sent.record(here);
      if (about.gradient) made->source = source;
    }
    letters_.send(about, made);
  }

  tensor receive(message const& about) {
    cudaStream_t const here = current_.current();
    auto const came = [&] {
      detail::waiting_for_ranks const here_too(waits_);
      return letters_.receive(about);
    }();
    if (came->is_empty) return finish(*came, tensor{}, here);
    tensor made = land(came->head, here);
    came->sent.wait(here);
    if (came->data) {
      // Without access the copy takes a longer way.
      if (!is_capturing(here) && reached_.insert(came->gpu).second)
        static_cast<void>(detail::reach_gpu(gpu_, came->gpu));
      check(cudaMemcpyAsync(tensors_.data(made), came->data, came->head.bytes, cudaMemcpyDefault, here),
            "cudaMemcpyAsync");
    }
    return finish(*came, std::move(made), here);
  }

private:
  using landings = stretto::detail::landings<tensor, tensor_head, edge>;
  using lent = lent_tensor<tensor>;

  tensor finish(lent& came, tensor made, cudaStream_t here) {
    came.taken.record(here);
    came.is_taken = true;
    if (came.is_left) came.taken.synchronize();
    return made;
  }

  tensor land(tensor_head const& head, cudaStream_t here) {
    if (head.bytes == 0) return tensors_.make(head);
    auto place = landings_->take(head, detail::capture_of(here));
    if (place) {
      place->left.wait(here);
    } else {
      place = std::make_shared<typename landings::place>();
      place->base = tensors_.make(head);
      place->head = head;
    }
    return tensors_.lend(place->base, [to = landings_, place, current = current_] {
      to->give_back(place, [here = current.current()](auto& left_alone) {
        left_alone.capture = detail::capture_of(here);
        left_alone.left.record(here);
      });
    });
  }

  /// For each peer letters of their own: the events of one belong to the GPUs of its two ranks.
  letter<tensor> new_letter(int peer) {
    auto& sent = sent_[peer];
    letter<tensor> found;
    for (auto& each : sent) {
      if (cudaEventQuery(each->sent.made()) == cudaSuccess) each->source = tensor{};
      if (each.use_count() > 1 || !each->is_taken || cudaEventQuery(each->taken.get()) != cudaSuccess)
        continue;
      each->copy = tensor{};
      if (!found) found = each;
    }
    // A query that finds work under way is no error.
    static_cast<void>(cudaGetLastError());
    if (!found) sent.push_back(found = std::make_shared<lent>());
    found->is_taken = false;
    found->source = tensor{};
    found->data = nullptr;
    return found;
  }

  Letters& letters_;
  Tensors tensors_;
  Current current_;
  int gpu_ = 0;
  std::set<int> reached_;
  std::function<void(bool)> waits_;
  std::map<int, std::deque<letter<tensor>>> sent_;
  std::deque<letter<tensor>> captured_;
  std::shared_ptr<landings> landings_ = std::make_shared<landings>();
};

} // namespace cuda
} // namespace v0
} // namespace stretto
