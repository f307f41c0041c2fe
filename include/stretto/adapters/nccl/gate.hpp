#pragma once

#include <stretto/adapters/nccl/in_flight.hpp>

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// Lets the issuing thread of a rank into NCCL until its communicators are given up, which another thread may do.
class gate {
public:
  gate(std::chrono::milliseconds deadline, std::chrono::milliseconds joining) : calls(deadline, joining) {}

  /// For as long as it lives nobody frees a communicator. Throws `error` where they were given up, whatever still waits for
  /// that.
  class pass {
  public:
    pass(gate& through, char const* what, std::chrono::milliseconds allowed)
        : of_(through), lock_(through.mutex_, std::defer_lock) {
      do of_.require_open();
      while (!lock_.try_lock_for(std::chrono::milliseconds(10)));
      of_.require_open();
      of_.calls.begin(what, allowed);
    }
    pass(pass const&) = delete;
    pass& operator=(pass const&) = delete;
    ~pass() { of_.calls.end(); }

  private:
    gate& of_;
    std::unique_lock<std::timed_mutex> lock_;
  };

  bool is_open() const noexcept { return open_.load(std::memory_order_acquire); }
  void require_open() const {
    if (is_open()) return;
    std::lock_guard const lock(why_mutex_);
    throw error("NCCL was given up: " + why_, ncclRemoteError);
  }

  /// Whether this was the first to close it.
  bool close(std::string why) {
    std::lock_guard const lock(why_mutex_);
    if (!is_open()) return false;
    why_ = std::move(why);
    open_.store(false, std::memory_order_release);
    return true;
  }
  /// Waits for whoever is inside of a gate that is closed, for a while. Nobody follows.
  void wait_until_empty(std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_, std::defer_lock);
    static_cast<void>(lock.try_lock_for(at_most));
  }

  in_flight calls;

private:
  std::timed_mutex mutex_;
  mutable std::mutex why_mutex_;
  std::string why_;
  std::atomic<bool> open_{true};
};

} // namespace nccl
} // namespace v0
} // namespace stretto
