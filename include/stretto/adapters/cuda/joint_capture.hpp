#pragma once

#include <stretto/adapters/cuda/handles.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// The turn that this thread has at a capture; null: none.
inline std::mutex*& turn_in_progress() noexcept {
  thread_local std::mutex* turn = nullptr;
  return turn;
}

/// As long as it lives, this thread alone issues into a capture, but for the waits in between.
class turn_scope {
public:
  explicit turn_scope(std::mutex& turn) : held_(turn) { turn_in_progress() = &turn; }
  ~turn_scope() { turn_in_progress() = nullptr; }
  turn_scope(turn_scope const&) = delete;
  turn_scope& operator=(turn_scope const&) = delete;

private:
  std::lock_guard<std::mutex> held_;
};

/// What ranks that are threads share to be captured into one graph: rank 0 opens it, every rank enters, issues and leaves,
/// and rank 0 ends it. Graphs apart could only wait for each other by flags, and on one GPU two of them get stuck.
class joint_capture {
public:
  joint_capture(std::size_t ranks, std::function<bool()> failed)
      : joins(ranks), before(ranks), ranks_(ranks), failed_(std::move(failed)) {}

  std::mutex turn;
  edge fork, ended;
  std::vector<edge> joins, before; ///< of each rank

  /// Nobody is in it: the ranks have met since it was used last.
  void reset() {
    std::lock_guard const lock(mutex_);
    state_ = state::closed, inside_ = left_ = 0, all_issued_ = true;
  }
  void open() { become(state::open); }
  /// Whether there is a capture to issue into.
  bool enter() {
    std::unique_lock lock(mutex_);
    wait(lock, [this] { return state_ != state::closed; });
    if (state_ != state::open) return false;
    ++inside_;
    return true;
  }
  void leave(bool has_issued) {
    std::lock_guard const lock(mutex_);
    --inside_, ++left_;
    all_issued_ = all_issued_ && has_issued;
    changed_.notify_all();
  }
  /// Rank 0: nobody issues any more. Whether all ranks have issued everything.
  bool wait_for_all() {
    std::unique_lock lock(mutex_);
    wait(lock, [this] { return left_ == ranks_; });
    changed_.wait(lock, [this] { return inside_ == 0; });
    state_ = state::over;
    return left_ == ranks_ && all_issued_;
  }
  void end(bool has_graph) { become(has_graph ? state::captured : state::failed); }
  /// Whether rank 0 made a graph of it.
  bool wait_for_end() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return state_ == state::captured || state_ == state::failed; });
    return state_ == state::captured;
  }

private:
  enum class state : unsigned char { closed, open, over, captured, failed };

  void become(state now) {
    std::lock_guard const lock(mutex_);
    state_ = now;
    changed_.notify_all();
  }
  /// Or until the step of the ranks has failed, which nobody tells.
  template <class Done> void wait(std::unique_lock<std::mutex>& lock, Done const& done) {
    while (!done() && !(failed_ && failed_())) changed_.wait_for(lock, std::chrono::milliseconds(5));
  }

  std::size_t const ranks_;
  std::function<bool()> const failed_;
  std::mutex mutex_;
  std::condition_variable changed_;
  state state_ = state::closed;
  std::size_t inside_ = 0, left_ = 0;
  bool all_issued_ = true;
};

} // namespace detail

/// For `exchange_options::waits` of exchanges whose calls are captured by a `step_graph` of several ranks: while a rank waits
/// for the others, they have their turn.
inline void hand_on_turn(bool waits) {
  auto* const turn = detail::turn_in_progress();
  if (!turn) return;
  if (waits)
    turn->unlock();
  else
    turn->lock();
}

} // namespace cuda
} // namespace v0
} // namespace stretto
