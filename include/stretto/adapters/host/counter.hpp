#pragma once

#include <stretto/adapters/host/clock.hpp>

#include <atomic>
#include <cstdint>
#include <thread>

namespace stretto {
inline namespace v0 {
namespace host {

/// A count that one thread raises and other threads wait for: awake for a while if they are told to, then asleep.
class counter {
public:
  std::uint64_t load() const noexcept { return count_.load(std::memory_order_acquire); }

  /// What the caller wrote before is seen by every thread that sees the count.
  void raise_to(std::uint64_t count) noexcept {
    count_.store(count, std::memory_order_release);
    // Sequentially consistent on both sides: either the waiter sees the new bell, or we see the waiter.
    bell_.fetch_add(1);
    if (sleepers_.load() != 0) bell_.notify_all();
  }

  /// Returns the count, which is then at least `count`. Looks for it for `look` before it sleeps.
  std::uint64_t wait_for(std::uint64_t count, clock::duration look = {}) noexcept {
    std::uint64_t seen = load();
    if (seen < count && look > clock::duration::zero())
      for (auto const end = clock::now() + look; seen < count && clock::now() < end; seen = load()) glance();
    return seen >= count ? seen : sleep_until(count);
  }

private:
  /// Leaves the core to the other thread that it may run at the same time, and now and then to whoever else wants it.
  static void glance() noexcept {
#if defined(__x86_64__)
    for (int pause = 0; pause < 20; ++pause) __builtin_ia32_pause();
#endif
    std::this_thread::yield();
  }

  std::uint64_t sleep_until(std::uint64_t count) noexcept {
    sleepers_.fetch_add(1);
    std::uint64_t seen;
    for (;;) {
      std::uint32_t const bell = bell_.load();
      seen = load();
      if (seen >= count) break;
      bell_.wait(bell);
    }
    sleepers_.fetch_sub(1);
    return seen;
  }

  std::atomic<std::uint64_t> count_{0};
  // Waiting on 32 bits is one futex on Linux; waiting on 64 goes through a table that unrelated counters share.
  std::atomic<std::uint32_t> bell_{0};
  std::atomic<std::uint32_t> sleepers_{0};
};

} // namespace host
} // namespace v0
} // namespace stretto
