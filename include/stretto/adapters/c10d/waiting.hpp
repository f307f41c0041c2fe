#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <algorithm>
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
  void operator()(::c10::intrusive_ptr<::c10d::Work> const& work, std::string const& what) {
    {
      std::lock_guard const lock(mutex_);
      works_.push_back(work);
      if (given_up_) abort(*work);
    }
    std::string problem;
    try {
      // Works of Gloo return false when they were aborted.
      if (!work->wait()) problem = "the step was given up";
    } catch (std::exception const& error) {
      problem = first_line(error.what());
    }
    {
      std::lock_guard const lock(mutex_);
      works_.erase(std::find(works_.begin(), works_.end(), work));
    }
    if (!problem.empty()) throw process_error(what + ": " + problem);
  }

  /// Ends what waits for messages; collective calls end when their group's deadline passes or a process of it ends.
  void give_up() {
    std::lock_guard const lock(mutex_);
    given_up_ = true;
    for (auto const& each : works_) abort(*each);
  }

  /// Before a call is made: throws if the step was given up.
  void require_going_on(std::string const& what) {
    std::lock_guard const lock(mutex_);
    if (given_up_) throw process_error(what + ": the step was given up");
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

  std::mutex mutex_;
  std::vector<::c10::intrusive_ptr<::c10d::Work>> works_;
  bool given_up_ = false;
};

} // namespace c10d
} // namespace v0
} // namespace stretto
