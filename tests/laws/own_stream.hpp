#pragma once

#include <stretto/adapters/array.hpp>

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace laws {

/// A communicator in the shape of those that own a stream and one buffer: it is told `K` experts a token, makes the copies
/// and adds up what comes back itself, works on a thread of its own while the caller waits for its done-event, and lets
/// one handle live at a time.
template <class Exchange, int K> class own_stream {
  using inner_comm = stretto::array::expert_parallel<Exchange>;

public:
  using tensor = stretto::array::tensor;
  using routing = typename inner_comm::routing; ///< `K` ids for each row

  class handle {
  public:
    std::vector<int> const& rows() const { return inner.rows(); }

  private:
    friend class own_stream;
    typename inner_comm::handle inner;
    struct leave {
      void operator()(int* lives) const { --*lives; }
    };
    std::unique_ptr<int, leave> place;
  };

  static constexpr stretto::counts_mode counts = stretto::counts_mode::host;
  static constexpr int in_flight = 1;
  static constexpr bool capturable = false;

  own_stream(Exchange& exchange, int local_experts)
      : inner_(exchange, local_experts), stream_([this] { work(); }) {}
  own_stream(own_stream const&) = delete;
  own_stream& operator=(own_stream const&) = delete;
  ~own_stream() {
    {
      std::lock_guard const lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    stream_.join();
  }

  int rank() const { return inner_.rank(); }
  int ranks() const { return inner_.ranks(); }

  tensor dispatch(tensor const& rows, routing const& where, handle& made) {
    if (lives_ >= in_flight)
      throw std::logic_error(
          "this communicator has one buffer, and the handle of another dispatch still lives");
    made.place.reset(&++lives_);
    return on_stream([&] { return inner_.dispatch(repeat_rows(rows, K), where, made.inner); });
  }
  tensor combine(tensor const& rows, handle& made) {
    return on_stream([&] { return sum_repeated_rows(inner_.combine(rows, made.inner), K); });
  }
  tensor dispatch_backward(tensor const& rows, handle& made) { return combine(rows, made); }
  tensor combine_backward(tensor const& rows, handle& made) {
    return on_stream([&] { return inner_.combine_backward(repeat_rows(rows, K), made.inner); });
  }

private:
  template <class F> tensor on_stream(F&& f) {
    tensor result;
    std::exception_ptr problem;
    std::unique_lock lock(mutex_);
    task_ = [&] {
      try {
        result = f();
      } catch (...) {
        problem = std::current_exception();
      }
    };
    changed_.notify_all();
    changed_.wait(lock, [this] { return !task_; });
    lock.unlock();
    if (problem) std::rethrow_exception(problem);
    return result;
  }
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ended_ || task_; });
      if (ended_) return;
      lock.unlock();
      task_();
      lock.lock();
      task_ = {};
      changed_.notify_all();
    }
  }

  inner_comm inner_;
  int lives_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::function<void()> task_;
  bool ended_ = false;
  std::thread stream_;
};

} // namespace laws
