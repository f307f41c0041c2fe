#pragma once

#include <stretto/adapters/cuda/handles.hpp>
#include <stretto/timeline.hpp>

#include <chrono>
#include <map>
#include <mutex>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// A moment of a device that all ranks of the process measure from. Ranks on one device agree exactly; those of different
/// devices as well as the host sees an event complete, a few microseconds.
struct time_base {
  time_mark mark;
  double us = 0;

  /// That of the current device.
  static time_base& of_device(int device) {
    static std::mutex mutex;
    static std::map<int, time_base> bases;
    std::lock_guard const lock(mutex);
    auto const [found, is_new] = bases.try_emplace(device);
    if (is_new) {
      stream idle;
      found->second.mark.record(idle.get());
      found->second.mark.synchronize();
      found->second.us = now_us();
    }
    return found->second;
  }
  /// The time of the host as `us` counts it.
  static double now_us() {
    static auto const start = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }
};

/// The spans of one lane, by timing events around each op.
class stopwatch {
public:
  explicit stopwatch(std::size_t capacity) { spans_.reserve(capacity), capacity_ = capacity; }

  /// Ops beyond the capacity are not measured.
  void start(op_label const& op, cudaStream_t on) {
    running_ = used_ < capacity_;
    if (!running_) return;
    if (used_ == spans_.size()) spans_.emplace_back();
    spans_[used_].op = op;
    spans_[used_].start.record(on);
  }
  void stop(cudaStream_t on) {
    if (running_) spans_[used_++].end.record(on);
    running_ = false;
  }
  void clear() { used_ = 0; }

  /// Only while the lane is idle. `epoch` lies at `epoch_us`.
  void append(std::vector<span>& to, int rank, time_mark& epoch, double epoch_us) {
    for (std::size_t i = 0; i < used_; ++i)
      to.push_back({spans_[i].op, rank, epoch_us + microseconds_between(epoch, spans_[i].start),
                    epoch_us + microseconds_between(epoch, spans_[i].end)});
  }

private:
  struct measured {
    op_label op{};
    time_mark start, end;
  };
  std::vector<measured> spans_;
  std::size_t capacity_ = 0, used_ = 0;
  bool running_ = false;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
