#pragma once

#include <stretto/adapters/cuda/flags.hpp>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// What an exchange between threads of one process is told about its ranks.
struct exchange_options {
  /// How long a call waits on the host for a rank that does not come.
  std::chrono::milliseconds deadline{30000};
  /// Whether the step of these ranks has failed, mostly a look at the board of their group; asked from several threads.
  /// Without it nobody lets go the streams that replay captured calls of ranks that have gone.
  std::function<bool()> failed{};
};

namespace detail {

/// The flags of the ranks of one exchange, which all of them own: some for each pair. When a step has failed, every flag
/// is raised until its streams have run dry, and the ranks must set the flags back before the next step.
class flag_room {
public:
  /// Flags of the first `free_kinds` kinds are 1 at rest, the others 0.
  flag_room(std::size_t ranks, std::size_t kinds, std::size_t free_kinds = 0)
      : ranks_(ranks), kinds_(kinds), free_kinds_(free_kinds), flags_(ranks * ranks * kinds) {
    for (std::size_t owner = 0; owner < ranks; ++owner) set_back(owner);
  }
  flag_room(flag_room const&) = delete;
  flag_room& operator=(flag_room const&) = delete;
  ~flag_room() {
    {
      std::lock_guard const lock(mutex_);
      ends_ = true;
    }
    wake_.notify_all();
    if (guard_.joinable()) guard_.join();
  }

  /// The flag that streams of `owner` wait for and those of `other` raise.
  std::uint32_t* at(std::size_t owner, std::size_t other, std::size_t kind) const {
    return flags_[index(owner, other, kind)];
  }
  void set_back(std::size_t owner) {
    for (std::size_t other = 0; other < ranks_; ++other)
      for (std::size_t kind = 0; kind < kinds_; ++kind)
        flags_.set(index(owner, other, kind), kind < free_kinds_);
  }

  /// Whether a call or a replay was given up since the ranks were last in order.
  bool is_broken() {
    std::lock_guard const lock(mutex_);
    return is_broken_;
  }
  void set_broken(bool now) {
    std::lock_guard const lock(mutex_);
    is_broken_ = now;
  }

  /// From now on a thread watches over streams that wait for flags. Any rank, any number of times.
  void watch(std::function<bool()> const& failed) {
    if (!failed) return;
    std::lock_guard const lock(mutex_);
    if (!guard_.joinable()) guard_ = std::thread([this, failed] { stand_guard(failed); });
  }

private:
  std::size_t index(std::size_t owner, std::size_t other, std::size_t kind) const noexcept {
    return (owner * ranks_ + other) * kinds_ + kind;
  }

  void stand_guard(std::function<bool()> const& failed) {
    std::unique_lock lock(mutex_);
    for (int raised = 0; !ends_;) {
      // Under the lock, so that a rank which begins the next step finds it broken, or is not disturbed any more.
      if (failed()) {
        is_broken_ = true;
        for (std::size_t i = 0; i < flags_.size(); ++i) flags_.set(i, 1);
        ++raised;
      } else {
        raised = 0;
      }
      // A stream waits again behind each wait: quickly, for as long as a queue may reasonably last.
      bool const hurry = raised > 0 && raised < 20000;
      wake_.wait_for(lock, hurry ? std::chrono::microseconds(100) : std::chrono::microseconds(20000));
    }
  }

  std::size_t const ranks_, kinds_, free_kinds_;
  host_flags flags_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool is_broken_ = false, ends_ = false;
  std::thread guard_;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
