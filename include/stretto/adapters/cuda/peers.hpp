#pragma once

#include <stretto/adapters/cuda/message_copies.hpp>
#include <stretto/adapters/cuda/reach.hpp>

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
  /// Stays until it is copied.
  Tensor source{};
  void* data = nullptr;
  int gpu = 0;
  edge sent; ///< behind it the copy is there
  edge taken; ///< behind it the copy has been fetched; to be looked at once `is_taken`
  std::atomic<bool> is_taken{false}, is_left{false};
};

/// What travels between the hosts: the tensor of the `Letters` of `peers`.
template <class Tensor> using letter = basic_letter<std::shared_ptr<lent_tensor<Tensor>>>;

namespace detail {

/// Copies between threads, which wait for each other by events.
template <class Tensor> class thread_lender {
  using lent_one = lent_tensor<Tensor>;

public:
  using lent = std::shared_ptr<lent_one>;

  thread_lender() { check(cudaGetDevice(&gpu_), "cudaGetDevice"); }
  thread_lender(thread_lender const&) = delete;
  thread_lender& operator=(thread_lender const&) = delete;
  /// Letters that have not been taken live on with whoever has them.
  ~thread_lender() {
    for (auto const& [peer, all] : sent_)
      for (auto const& each : all) {
        // Either we see that it is taken, or the taker sees that we have left.
        each->is_left = true;
        if (each->is_taken) each->taken.try_synchronize();
      }
  }

  void forget_fetched() {
    for (auto const& [peer, all] : sent_)
      for (auto const& each : all) {
        if (each->sent.get() && cudaEventQuery(each->sent.get()) == cudaSuccess) each->source = Tensor{};
        if (is_free(each)) each->copy = Tensor{};
      }
    // A query that finds work under way is no error.
    static_cast<void>(cudaGetLastError());
  }

  lent lend(int peer, Tensor copy, void* data, Tensor source, cudaStream_t here) {
    lent const made =
        is_capturing(here) ? captured_.emplace_back(std::make_shared<lent_one>()) : unused(peer);
    made->is_taken = false;
    made->copy = std::move(copy);
    made->data = data;
    made->gpu = gpu_;
    made->sent.record(here);
    made->source = std::move(source);
    return made;
  }

  template <class Copy> void fetch(lent const& from, cudaStream_t here, Copy const& copy) {
    from->sent.wait(here);
    // Without access the copy takes a longer way.
    if (!is_capturing(here) && reached_.insert(from->gpu).second)
      static_cast<void>(reach_gpu(gpu_, from->gpu));
    copy(from->data);
    from->taken.record(here);
    from->is_taken = true;
    if (from->is_left) from->taken.synchronize();
  }

private:
  static bool is_free(lent const& each) {
    return each.use_count() == 1 && each->is_taken && cudaEventQuery(each->taken.get()) == cudaSuccess;
  }
  /// For each peer letters of their own: the events of one belong to the GPUs of its two ranks.
  lent unused(int peer) {
    auto& all = sent_[peer];
    for (auto const& each : all)
      if (is_free(each)) return each;
    static_cast<void>(cudaGetLastError());
    return all.emplace_back(std::make_shared<lent_one>());
  }

  int gpu_ = 0;
  std::set<int> reached_;
  std::map<int, std::deque<lent>> sent_;
  std::deque<lent> captured_; ///< what graphs copy stays
};

} // namespace detail

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
class peers : public detail::message_copies<Tensors, Letters, detail::thread_lender<typename Tensors::tensor>,
                                            Current> {
public:
  /// `waits` as in `exchange_options`.
  explicit peers(Letters& letters, Tensors tensors = {}, Current current = {},
                 std::function<void(bool)> waits = {})
      : peers::message_copies(letters, std::move(tensors), std::move(current), std::move(waits)) {}
};

} // namespace cuda
} // namespace v0
} // namespace stretto
