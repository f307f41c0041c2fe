#pragma once

#include <stretto/adapters/host/prompt.hpp>
#include <stretto/adapters/host/worker.hpp>

#include <algorithm>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace host {

/// The lanes of one rank as threads of this process: a `lane_adapter`. One thread at a time (the host) may call the
/// members. Nothing is allocated after construction until something fails.
///
/// An op that throws ends the step: what is issued later on any lane of the rank is skipped, with a shared
/// `failure_board` on any lane of any rank of the group. `drain` then throws a `step_error`. Without a shared board the
/// lanes are ready for a new step after that; with one they are when the group was reset.
class lanes {
public:
  /// Stands for everything issued on `on` up to `ticket`; never recorded, it stands for nothing.
  struct event {
    lane on = lane::compute;
    std::uint64_t ticket = 0;
  };

  explicit lanes(lane_options const& options = {}) : lanes(options, [](lane) {}) {}

  /// `start(lane)` is called once on each lane's thread, before its first op: the place to make a tensor library use
  /// one thread within an op.
  template <class Start>
  lanes(lane_options const& options, Start start)
      : board_(options.board ? *options.board : own_board_), rank_(options.rank) {
    for (std::size_t i = 0; i < std::size(workers_); ++i) {
      lane const on = static_cast<lane>(i);
      if (carries_messages(on) && !options.peers) continue;
      workers_[i] = std::make_unique<worker>(on, options, board_, [start, on]() mutable {
        if (on != lane::compute) wake_promptly();
        start(on);
      });
    }
  }
  lanes(lanes const&) = delete;
  lanes& operator=(lanes const&) = delete;

  /// Left by an exception of the host, the rest of the step is given up and the group is told.
  ~lanes() {
    if (std::uncaught_exceptions() > exceptions_ && !idle())
      board_.report({rank_, false, {}, "its host left the step by an exception", {}});
    // All before any: a worker may still look at another one's progress.
    for (auto const& each : workers_)
      if (each) each->wait_until_completed(each->issued());
  }

  template <class Task> void run(lane on, op_label const& label, Task task) { at(on).push(label, task); }

  void record(lane on, event& mark) { mark = {on, at(on).issued()}; }

  void wait(lane on, event const& mark) {
    if (mark.on == on || mark.ticket == 0) return;
    worker& other = at(mark.on);
    if (!other.completed(mark.ticket)) at(on).push_wait(other, mark.ticket);
  }

  /// Returns when every lane is idle. Throws `step_error` if an op of this rank or of its group failed.
  void drain() {
    for (auto const& each : workers_)
      if (each) each->wait_until_completed(each->issued());
    if (!board_.failed()) return;
    failure const what = board_.first();
    if (&board_ == &own_board_) board_.clear();
    throw_step_error(what);
  }

  bool idle() const noexcept {
    for (auto const& each : workers_)
      if (each && !each->completed(each->issued())) return false;
    return true;
  }

  int rank() const noexcept { return rank_; }
  failure_board& board() noexcept { return board_; }

  /// What ran since the last `clear_timeline`, by start; ops beyond `lane_options::spans` are missing. A span of a
  /// communication op contains its waiting for other ranks. Only after `drain`.
  std::vector<span> timeline() const {
    std::vector<span> all;
    for (auto const& each : workers_)
      if (each) all.insert(all.end(), each->spans().begin(), each->spans().end());
    std::sort(all.begin(), all.end(), [](span const& a, span const& b) {
      return a.start_us != b.start_us ? a.start_us < b.start_us : a.label.on < b.label.on;
    });
    return all;
  }
  void clear_timeline() noexcept {
    for (auto const& each : workers_)
      if (each) each->spans().clear();
  }

private:
  static constexpr std::size_t index(lane on) noexcept { return static_cast<std::size_t>(on); }

  worker& at(lane on) {
    if (index(on) >= std::size(workers_) || !workers_[index(on)]) no_such_lane(on);
    return *workers_[index(on)];
  }
  [[noreturn]] static void no_such_lane(lane on) {
    throw std::invalid_argument(std::string("stretto::host::lanes has no lane '") + name_of(on) + "'" +
                                (carries_messages(on) ? "; ask for it with lane_options::peers" : ""));
  }
  static constexpr bool carries_messages(lane on) noexcept { return is_send(on) || is_receive(on); }

  failure_board own_board_;
  failure_board& board_;
  int const rank_;
  int const exceptions_ = std::uncaught_exceptions();
  std::unique_ptr<worker> workers_[static_cast<std::size_t>(lane::forward_port)];
};

static_assert(lane_adapter<lanes>);

} // namespace host
} // namespace v0
} // namespace stretto
