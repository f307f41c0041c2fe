#pragma once

#include <stretto/adapters/cuda/handles.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// Who issues into a capture that several ranks share: one thread at a time, but for its waits for others.
class capture_turn {
public:
  explicit capture_turn(std::chrono::milliseconds deadline) : deadline_(deadline) {}

  bool take() {
    if (mutex_.try_lock_for(deadline_)) return true;
    is_lost_ = true;
    return false;
  }
  void hand_on() { mutex_.unlock(); }
  /// Whether a thread did not get it until the deadline: nobody knows then who issues.
  bool is_lost() const noexcept { return is_lost_; }
  /// Nobody has it.
  void reset() noexcept { is_lost_ = false; }

private:
  std::chrono::milliseconds const deadline_;
  std::timed_mutex mutex_;
  std::atomic<bool> is_lost_{false};
};

/// The turn that this thread has at a capture; null: none.
inline capture_turn*& turn_in_progress() noexcept {
  thread_local capture_turn* turn = nullptr;
  return turn;
}

/// As long as it lives, this thread has the turn.
class turn_scope {
public:
  explicit turn_scope(capture_turn& turn) {
    if (!turn.take())
      throw std::runtime_error("step_graph: another rank does not hand on its turn at the capture");
    turn_in_progress() = &turn;
  }
  ~turn_scope() {
    if (auto* const turn = std::exchange(turn_in_progress(), nullptr)) turn->hand_on();
  }
  turn_scope(turn_scope const&) = delete;
  turn_scope& operator=(turn_scope const&) = delete;
};

/// What ranks that are threads share to be captured into one graph: rank 0 opens it, every rank enters, issues and leaves,
/// and rank 0 ends it. Graphs apart could only wait for each other by flags, and on one GPU two of them get stuck. Waits end
/// when the step of the ranks has failed, which nobody tells, and when nobody has come or gone until the deadline. How long
/// rank 0 takes to make the graph depends on nobody, and has none.
class joint_capture {
public:
  joint_capture(std::size_t ranks, std::function<bool()> failed, std::chrono::milliseconds deadline)
      : turn(deadline), joins(ranks), before(ranks), ranks_(ranks), failed_(std::move(failed)),
        deadline_(deadline) {}

  capture_turn turn;
  edge fork, ended;
  std::vector<edge> joins, before; ///< of each rank

  /// Nobody is in it: the ranks have met since it was used last, and none goes on before it is done.
  void reset() {
    std::lock_guard const lock(mutex_);
    turn.reset();
    state_ = state::closed, left_ = 0, all_issued_ = true;
  }
  void open() { become(state::open); }
  /// Whether there is a capture to issue into.
  bool enter() {
    std::unique_lock lock(mutex_);
    if (!wait(lock, [this] { return state_ != state::closed; }) || state_ != state::open) return false;
    ++inside_, ++moves_;
    return true;
  }
  void leave(bool has_issued) {
    std::lock_guard const lock(mutex_);
    --inside_, ++left_, ++moves_;
    all_issued_ = all_issued_ && has_issued;
    changed_.notify_all();
  }
  /// Rank 0: nobody issues any more, or somebody never ends. Whether all ranks have issued everything.
  bool wait_for_all() {
    std::unique_lock lock(mutex_);
    wait(lock, [this] { return left_ == ranks_; });
    wait(
        lock, [this] { return inside_ == 0; }, /*whatever_failed=*/true);
    state_ = state::over;
    changed_.notify_all();
    return left_ == ranks_ && all_issued_ && !turn.is_lost();
  }
  void end(bool has_graph) { become(has_graph ? state::captured : state::failed); }
  /// Whether rank 0 made a graph of it.
  bool wait_for_end() {
    std::unique_lock lock(mutex_);
    auto const is_over = [this] { return state_ == state::captured || state_ == state::failed; };
    if (wait(
            lock, [&] { return state_ == state::over || is_over(); }, /*whatever_failed=*/true))
      changed_.wait(lock, is_over);
    return state_ == state::captured;
  }

private:
  enum class state : unsigned char { closed, open, over, captured, failed };

  void become(state now) {
    std::lock_guard const lock(mutex_);
    state_ = now;
    ++moves_;
    changed_.notify_all();
  }
  template <class Done>
  bool wait(std::unique_lock<std::mutex>& lock, Done const& done, bool whatever_failed = false) {
    auto moves = moves_;
    auto moved = std::chrono::steady_clock::now();
    while (!done()) {
      if (!whatever_failed && failed_ && failed_()) return false;
      auto const now = std::chrono::steady_clock::now();
      if (std::exchange(moves, moves_) != moves_) moved = now;
      if (now - moved > deadline_) return false;
      changed_.wait_for(lock, std::chrono::milliseconds(5));
    }
    return true;
  }

  std::size_t const ranks_;
  std::function<bool()> const failed_;
  std::chrono::milliseconds const deadline_;
  std::mutex mutex_;
  std::condition_variable changed_;
  state state_ = state::closed;
  std::size_t inside_ = 0, left_ = 0;
  std::uint64_t moves_ = 0;
  bool all_issued_ = true;
};

} // namespace detail

/// For `exchange_options::waits` of exchanges whose calls are captured by a `step_graph` of several ranks: while a rank waits
/// for the others, they have their turn.
inline void hand_on_turn(bool waits) {
  auto*& turn = detail::turn_in_progress();
  if (!turn) return;
  if (waits)
    turn->hand_on();
  else if (!turn->take())
    turn = nullptr; // and the capture fails
}

} // namespace cuda
} // namespace v0
} // namespace stretto
