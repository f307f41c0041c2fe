#pragma once

#include <stretto/failure.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace host {

/// A collective call or a message that ended without its result. `rank` is the rank of the group that failed, is missing
/// or did what the others did not; -1 if there is no one such rank.
class communicator_error : public std::runtime_error {
public:
  communicator_error(std::string const& what, int at_fault) : std::runtime_error(what), rank(at_fault) {}
  int rank;
};

/// Where the ranks of a group tell one another that a step goes on, or has failed. The first report wins, later ones are
/// mostly its consequences. All members may be called from any thread.
class failure_board {
public:
  failure_board() = default;
  /// `wake(context)` is called after the first report: it wakes whoever sleeps and should look at the board.
  failure_board(void (*wake)(void*), void* context) : wake_(wake), context_(context) {}
  failure_board(failure_board const&) = delete;
  failure_board& operator=(failure_board const&) = delete;

  bool failed() const noexcept { return failed_.load(std::memory_order_acquire); }

  /// Returns whether this report was the first.
  bool report(failure what) {
    {
      std::lock_guard const lock(mutex_);
      if (failed()) return false;
      first_ = std::move(what);
      failed_.store(true, std::memory_order_release);
    }
    if (wake_) wake_(context_);
    return true;
  }

  /// The first report; that of an empty failure if there is none.
  failure first() const {
    std::lock_guard const lock(mutex_);
    return first_;
  }

  /// An op or a call has ended. Who waits for another rank looks at `progress`, which is different then.
  void note_progress() noexcept { progress_.fetch_add(1, std::memory_order_relaxed); }
  std::uint64_t progress() const noexcept { return progress_.load(std::memory_order_relaxed); }

  /// Forgets the failure. Nobody may be at work on a step.
  void clear() {
    std::lock_guard const lock(mutex_);
    first_ = {};
    failed_.store(false, std::memory_order_release);
  }

private:
  mutable std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::atomic<std::uint64_t> progress_{0};
  failure first_;
  void (*wake_)(void*) = nullptr;
  void* context_ = nullptr;
};

} // namespace host
} // namespace v0
} // namespace stretto
