#pragma once

#include <stretto/detail/cxx20.hpp>

#include <atomic>
#include <cstddef>

namespace stretto {
inline namespace v0 {
namespace array {

/// How much storage lives, in the order of the calls that take it and give it back: over lanes that run each op at once,
/// in issue order. Any thread may take and give back.
class memory {
public:
  std::size_t live() const noexcept { return live_.load(std::memory_order_relaxed); }
  std::size_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  /// How often storage was taken so far.
  std::size_t taken() const noexcept { return taken_.load(std::memory_order_relaxed); }
  /// From now on the peak is that of what follows.
  void forget_peak() noexcept { peak_.store(live(), std::memory_order_relaxed); }

  void take(std::size_t bytes) noexcept {
    taken_.fetch_add(1, std::memory_order_relaxed);
    std::size_t const now = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::size_t seen = peak();
    while (seen < now && !peak_.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
  }
  void give_back(std::size_t bytes) noexcept { live_.fetch_sub(bytes, std::memory_order_relaxed); }

private:
  std::atomic<std::size_t> live_{0}, peak_{0}, taken_{0};
};

} // namespace array
} // namespace v0
} // namespace stretto
