#pragma once

#include <stretto/detail/cxx20.hpp>

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace c10d {

/// A call to other processes that ended without its result: one has died or is silent, or the step was given up.
struct process_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The messages in flight of one process, so that a step that has failed does not wait for them.
class waiting {
public:
  /// Returns when `work` is done, and not before: until then memory of the caller is written to. Throws `process_error` that
  /// begins with `what` if it fails, the deadline of its group passes, or `give_up` was called.
  void operator()(::c10::intrusive_ptr<::c10d::Work> const& work, std::string const& what,
                  std::chrono::milliseconds time = {}) {
    {
      std::lock_guard const lock(mutex_);
      works_.push_back(work);
      if (given_up_) abort(*work);
    }
    std::string problem;
    bool ended = false;
    try {
      // Works of Gloo return false when they were aborted.
      ended = work->wait(time);
    } catch (std::exception const& error) {
      problem = first_line(error.what());
    }
    {
      std::lock_guard const lock(mutex_);
      works_.erase(std::find(works_.begin(), works_.end(), work));
      if (!ended && problem.empty()) problem = reason_;
    }
    if (!problem.empty()) throw process_error(what + ": " + problem);
    finished_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Ends what waits for messages, with `reason` if it is the first; collective calls end when their group's deadline passes
  /// or a process of it ends.
  void give_up(std::string const& reason = "the step was given up") {
    std::lock_guard const lock(mutex_);
    if (!given_up_) reason_ = reason;
    given_up_ = true;
    for (auto const& each : works_) abort(*each);
  }

  /// How long messages may take; without it, the deadline of their group. For whoever watches that other ranks go on, and
  /// gives up where they do not. Before the first message.
  void set_patience(std::chrono::milliseconds time) { patience_ = time; }
  std::chrono::milliseconds patience() const { return patience_; }

  /// Whether a call or a message is under way.
  bool waits() const {
    std::lock_guard const lock(mutex_);
    return !works_.empty();
  }
  /// How many have ended well.
  std::uint64_t finished() const noexcept { return finished_.load(std::memory_order_relaxed); }

  /// Before a call is made: throws if the step was given up.
  void require_going_on(std::string const& what) {
    std::lock_guard const lock(mutex_);
    if (given_up_) throw process_error(what + ": " + reason_);
  }

  /// `[file:line] Connection closed by peer [address]. more` as its first line.
  static std::string first_line(std::string const& text) { return text.substr(0, text.find('\n')); }

private:
  static void abort(::c10d::Work& work) {
    try {
      work.abort();
    } catch (std::exception const&) {
      // Not every work can be aborted.
    }
  }

  mutable std::mutex mutex_;
  std::vector<::c10::intrusive_ptr<::c10d::Work>> works_;
  bool given_up_ = false;
  std::string reason_ = "the step was given up";
  std::atomic<std::uint64_t> finished_{0};
  std::chrono::milliseconds patience_{};
};

} // namespace c10d
} // namespace v0
} // namespace stretto
