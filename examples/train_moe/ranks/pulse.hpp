#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>

namespace train_moe {

/// How a process knows that its run goes on.
struct pulse {
  std::chrono::milliseconds deadline;
  std::function<std::uint64_t()> progress; ///< of this process: another number when something has ended
  /// Tells the other processes whether this one went on; returns a number that is another when any has.
  std::function<std::int64_t(bool went_on)> tell;
  /// Nothing has gone on in any process until the deadline; may be called again.
  std::function<void()> on_silence;
};

/// What is seen of a run in parts of its deadline.
class quiet_parts {
public:
  static constexpr int of_a_deadline = 16;

  quiet_parts(std::uint64_t own, std::int64_t others) : seen_(own, others) {}
  /// A part later: whether nothing has gone on for a whole deadline. One part more, since others tell of their progress up to a
  /// part later.
  bool add(std::uint64_t own, std::int64_t others) {
    auto const now = std::pair(own, others);
    quiet_ = std::exchange(seen_, now) == now ? quiet_ + 1 : 0;
    return quiet_ > of_a_deadline;
  }

private:
  std::pair<std::uint64_t, std::int64_t> seen_;
  int quiet_ = 0;
};

/// Watches until the process ends. A rank may rightly wait long for others that work, as the last stage of a long pipeline
/// does for its first microbatch: what counts is that nobody goes on. In sixteenths of the deadline, to which the clock of a
/// machine that slept adds nothing; `tell` has a thread of its own, since the process that it asks may be the silent one.
inline void keep_pulse(pulse of) {
  auto const shared = std::make_shared<pulse>(std::move(of));
  auto const others = std::make_shared<std::atomic<std::int64_t>>(0);
  auto const pause = shared->deadline / quiet_parts::of_a_deadline;
  std::thread([shared, others, pause] {
    try {
      for (std::uint64_t seen = shared->progress();; std::this_thread::sleep_for(pause)) {
        auto const now = shared->progress();
        *others = shared->tell(std::exchange(seen, now) != now);
      }
    } catch (std::exception const&) {
      // Nobody keeps the numbers any more: the own ones remain.
    }
  }).detach();
  std::thread([shared, others, pause] {
    for (quiet_parts seen(shared->progress(), *others);;) {
      std::this_thread::sleep_for(pause);
      if (seen.add(shared->progress(), *others)) shared->on_silence();
    }
  }).detach();
}

} // namespace train_moe
