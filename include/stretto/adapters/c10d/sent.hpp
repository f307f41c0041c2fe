#pragma once

#include <stretto/adapters/c10d/waiting.hpp>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace c10d {

/// Sees messages off: a send of Gloo lasts until its receive is there, which nobody but this thread waits for.
class sent_messages {
public:
  explicit sent_messages(waiting& in_flight) : waiting_(in_flight), thread_([this] { see_off(); }) {}
  sent_messages(sent_messages const&) = delete;
  sent_messages& operator=(sent_messages const&) = delete;

  /// Returns when all have left, or failed.
  ~sent_messages() {
    {
      std::lock_guard const lock(mutex_);
      ends_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  /// Throws `process_error` if an earlier message could not be delivered.
  void add(::c10::intrusive_ptr<::c10d::Work> work, std::string name) {
    {
      std::lock_guard const lock(mutex_);
      if (!problem_.empty()) throw process_error(problem_);
      works_.emplace_back(std::move(work), std::move(name));
    }
    changed_.notify_one();
  }

private:
  void see_off() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ends_ || !works_.empty(); });
      if (works_.empty()) return;
      auto const [work, name] = std::move(works_.front());
      works_.pop_front();
      lock.unlock();
      std::string problem;
      try {
        waiting_(work, name, waiting_.patience());
      } catch (std::exception const& error) {
        problem = error.what();
      }
      lock.lock();
      if (problem_.empty()) problem_ = std::move(problem);
    }
  }

  waiting& waiting_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::pair<::c10::intrusive_ptr<::c10d::Work>, std::string>> works_;
  std::string problem_;
  bool ends_ = false;
  std::thread thread_;
};

} // namespace c10d
} // namespace v0
} // namespace stretto
