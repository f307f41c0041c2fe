#pragma once

#include <stretto/adapters/host.hpp>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace test {

using namespace stretto;

inline op_label label(phase_kind phase, lane on = lane::compute, int layer = 0, int microbatch = 0,
                      pass what = pass::forward) {
  return {phase, what, on, layer, microbatch};
}

/// Every lane that has a queue.
inline std::vector<lane> all_lanes() {
  std::vector<lane> all;
  for (int i = 0; i < static_cast<int>(lane::forward_port); ++i) all.push_back(static_cast<lane>(i));
  return all;
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
