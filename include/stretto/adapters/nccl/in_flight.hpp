#pragma once

#include <stretto/adapters/nccl/error.hpp>
#include <stretto/detail/op_place.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <mutex>
#include <optional>

namespace stretto {
inline namespace v0 {
namespace nccl {

using clock = std::chrono::steady_clock;

/// A call of this rank that the GPU may not have ended yet.
struct issued_call {
  char const* what = "";
  stretto::detail::op_place where{};
  std::chrono::milliseconds allowed{};
  clock::time_point late{}; ///< it should have ended by then
};

/// What a rank has given to NCCL: one thread issues, another may look whether it ends in time. Looking costs nothing on the
/// GPU, and touches CUDA only where something is older than the deadline.
class in_flight {
public:
  /// `deadline` is that of a call, `joining` what it takes at most to make and to connect a communicator.
  in_flight(std::chrono::milliseconds deadline, std::chrono::milliseconds joining)
      : deadline_(deadline), joining_(joining) {}
  in_flight(in_flight const&) = delete;
  in_flight& operator=(in_flight const&) = delete;
  ~in_flight() {
    for (auto& each : calls_)
      if (each.done) static_cast<void>(cudaEventDestroy(each.done));
  }

  std::chrono::milliseconds deadline() const noexcept { return deadline_; }
  std::chrono::milliseconds joining() const noexcept { return joining_; }

  /// Between these two the issuing thread is inside of NCCL, which may wait for other ranks there.
  void begin(char const* what, std::chrono::milliseconds allowed) {
    std::lock_guard const lock(mutex_);
    inside_ = issued_call{what, stretto::detail::place_in_progress(), allowed, clock::now() + allowed};
  }
  void end() {
    std::lock_guard const lock(mutex_);
    inside_.reset();
  }

  /// Everything on `stream` so far. What is being captured does not run; note the launch of its graph.
  void note(char const* what, cudaStream_t stream) { note(what, stream, deadline_); }
  void note(char const* what, cudaStream_t stream, std::chrono::milliseconds allowed) {
    cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream, &capture), "cudaStreamIsCapturing");
    if (capture != cudaStreamCaptureStatusNone) return;
    std::unique_lock lock(mutex_);
    // When all places are taken the oldest must be done for this one to be watched; those after it will be.
    if (count_ == calls_.size()) forget_done();
    if (count_ == calls_.size()) return;
    auto& to = at(count_);
    // A stream that is full lets nobody record before it moves on, which the other thread may have to see to.
    lock.unlock();
    if (!to.done)
      check(cudaEventCreateWithFlags(&to.done, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    check(cudaEventRecord(to.done, stream), "cudaEventRecord");
    lock.lock();
    to.call = {what, stretto::detail::place_in_progress(), allowed, clock::now() + allowed};
    to.is_over = false;
    ++count_;
  }

  /// The oldest call that has not ended although its time is over. Any thread, while others capture as well.
  std::optional<issued_call> overdue() {
    std::lock_guard const lock(mutex_);
    auto const now = clock::now();
    if (inside_ && inside_->late < now) return inside_;
    // Calls are allowed different times, so that one that has much left may stand before one that is late.
    for (std::size_t i = 0; i < count_; ++i)
      if (at(i).call.late < now && !look(at(i))) return at(i).call;
    while (count_ > 0 && at(0).is_over) drop_first();
    return std::nullopt;
  }

  /// The oldest call that has not ended, to name where something went wrong.
  std::optional<issued_call> oldest() {
    std::lock_guard const lock(mutex_);
    forget_done();
    if (count_ > 0) return at(0).call;
    return inside_;
  }

private:
  struct watched {
    issued_call call;
    cudaEvent_t done = nullptr;
    bool is_over = false;
  };

  watched& at(std::size_t place) { return calls_[(first_ + place) % calls_.size()]; }

  /// Whether it is over, be it by an error, which is for whoever waits for its stream to tell.
  static bool look(watched& call) {
    if (call.is_over) return true;
    // Else the look would spoil what this or another thread captures.
    auto mode = cudaStreamCaptureModeRelaxed;
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
    call.is_over = cudaEventQuery(call.done) != cudaErrorNotReady;
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
    if (!call.is_over) static_cast<void>(cudaGetLastError());
    return call.is_over;
  }
  void forget_done() {
    while (count_ > 0 && look(at(0))) drop_first();
  }
  void drop_first() {
    first_ = (first_ + 1) % calls_.size();
    --count_;
  }

  std::chrono::milliseconds const deadline_, joining_;
  std::mutex mutex_;
  std::optional<issued_call> inside_;
  std::array<watched, 64> calls_{};
  std::size_t first_ = 0, count_ = 0;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
