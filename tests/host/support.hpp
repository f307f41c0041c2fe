#pragma once

#include <stretto/adapters/host.hpp>

#include <atomic>
#include <chrono>
#include <thread>

namespace test {

using namespace stretto;

inline op_label label(phase_kind phase, lane on = lane::compute, int layer = 0, int microbatch = 0,
                      pass what = pass::forward) {
  return {phase, what, on, layer, microbatch};
}

inline void sleep_ms(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

/// False when it did not come true in time: a broken adapter fails its test instead of hanging it.
inline bool comes_true(std::atomic<bool> const& flag, int milliseconds) {
  auto const end = host::clock::now() + std::chrono::milliseconds(milliseconds);
  while (!flag) {
    if (host::clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return true;
}

} // namespace test
