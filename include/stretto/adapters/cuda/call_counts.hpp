#pragma once

#include <stretto/detail/cxx20.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

enum class outcome : unsigned char { came, late, given_up };

/// How far each of several threads is. Ranks come to a call at nearly the same time, so a wait looks for a while before
/// it sleeps: to be woken takes longer than an operation may cost.
class call_counts {
public:
  explicit call_counts(std::size_t threads) : counts_(threads) {}

  /// What the caller wrote before is seen by whoever sees the count.
  void set(std::size_t which, std::uint64_t to) noexcept {
    counts_[which].value.store(to);
    // Sequentially consistent on both sides: either the sleeper sees the count, or we see the sleeper.
    if (sleepers_.load() == 0) return;
    { std::lock_guard const lock(mutex_); }
    raised_.notify_all();
  }

  bool has_come(std::size_t which, std::uint64_t at_least) const noexcept {
    return counts_[which].value.load() >= at_least;
  }

  /// Returns when the count is at least that, after `deadline`, or soon after `over()` says that nobody will come.
  template <class Over>
  outcome wait(std::size_t which, std::uint64_t at_least, std::chrono::milliseconds deadline,
               Over const& over) {
    for (int look = 0; look < 2000; ++look) {
      if (has_come(which, at_least)) return outcome::came;
      if (look > 500) std::this_thread::yield();
    }
    auto const end = std::chrono::steady_clock::now() + deadline;
    sleepers_.fetch_add(1);
    std::unique_lock lock(mutex_);
    auto found = outcome::came;
    while (!has_come(which, at_least)) {
      if (over()) {
        found = outcome::given_up;
        break;
      }
      if (std::chrono::steady_clock::now() >= end) {
        found = outcome::late;
        break;
      }
      // `over` may change without a notice.
      raised_.wait_for(lock, std::chrono::milliseconds(2));
    }
    sleepers_.fetch_sub(1);
    return found;
  }

private:
  struct alignas(64) count {
    std::atomic<std::uint64_t> value{0};
  };
  std::vector<count> counts_;
  std::atomic<int> sleepers_{0};
  std::mutex mutex_;
  std::condition_variable raised_;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
