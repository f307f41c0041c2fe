#pragma once

#include <stretto/adapters/host/clock.hpp>
#include <stretto/adapters/host/counter.hpp>
#include <stretto/adapters/host/failure.hpp>
#include <stretto/detail/op_place.hpp>
#include <stretto/detail/waiting_time.hpp>
#include <stretto/timeline.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace host {

/// How the lanes of one rank are made.
struct lane_options {
  /// The rank that errors and timelines name.
  int rank = 0;
  /// Shared with the other ranks of a group (`group::board`), so that a step that fails on one fails on all. Null: the
  /// lanes have one of their own.
  failure_board* board = nullptr;
  /// Whether there are lanes for the messages between pipeline ranks.
  bool peers = false;
  /// Ops and waits that may be outstanding on one lane; the host blocks when there are more. Rounded up to a power of 2.
  std::size_t ring = 256;
  /// How long the compute lane and the communication lane look for what they wait for before they sleep: to be woken takes
  /// tens of microseconds, and a core that was idle is slow at first. Worth it where each of the two has a core to itself.
  /// Lanes of messages always sleep.
  std::chrono::microseconds look{0};
  /// Ops of one lane that the timeline holds until it is cleared. 0: no timeline.
  std::size_t spans = 0;
  /// Not 0: each op starts after a random delay of at most `shake_us` microseconds, to shake out races.
  std::uint64_t shake_seed = 0;
  double shake_us = 100;
};

/// The thread of one lane and the ring of what it still has to do. One other thread (the host) pushes.
class worker {
public:
  static constexpr std::size_t task_bytes = 64;

  /// `start()` runs on the new thread before anything else; what it throws, the constructor throws.
  template <class Start>
  worker(lane on, lane_options const& options, failure_board& board, Start start)
      : board_(board), rank_(options.rank), ring_(power_of_two(options.ring)), mask_(ring_.size() - 1),
        look_(on == lane::compute || on == lane::comm ? stretto::detail::waiting_time(options.look)
                                                      : clock::duration::zero()),
        shake_us_(options.shake_us), random_(options.shake_seed ? mix(options.shake_seed, rank_, on) : 0) {
    spans_.reserve(options.spans);
    std::exception_ptr problem;
    thread_ = std::thread([this, &problem, start = std::move(start)]() mutable {
      bool good = true;
      try {
        start();
      } catch (...) {
        problem = std::current_exception();
        good = false;
      }
      started_.raise_to(1);
      if (good) work();
    });
    started_.wait_for(1);
    if (!problem) return;
    thread_.join();
    std::rethrow_exception(problem);
  }
  worker(worker const&) = delete;
  worker& operator=(worker const&) = delete;

  /// Does what was pushed before, then ends.
  ~worker() {
    next().what = item::stop;
    publish();
    thread_.join();
  }

  template <class Task> void push(op_label const& label, Task const& task) {
    static_assert(std::is_trivially_copyable_v<Task> && sizeof(Task) <= task_bytes,
                  "an op's task must be trivially copyable and at most 64 bytes: capture references");
    static_assert(alignof(Task) <= alignof(std::max_align_t), "an op's task must not be over-aligned");
    item& it = next();
    it.what = item::op;
    it.label = label;
    it.call = [](void* stored) { (*std::launder(static_cast<Task*>(stored)))(); };
    ::new (static_cast<void*>(it.task)) Task(task);
    publish();
  }

  /// What is pushed from now on starts after `other` has completed `ticket`.
  void push_wait(worker& other, std::uint64_t ticket) {
    item& it = next();
    it.what = item::wait;
    it.other = &other;
    it.ticket = ticket;
    publish();
  }

  /// How much was pushed so far: the ticket of the last push. Host only.
  std::uint64_t issued() const noexcept { return issued_; }
  bool completed(std::uint64_t ticket) const noexcept { return completed_.load() >= ticket; }
  void wait_until_completed(std::uint64_t ticket, clock::duration look = {}) noexcept {
    completed_.wait_for(ticket, look);
  }

  /// Host only, and only while the lane is idle.
  std::vector<span>& spans() noexcept { return spans_; }

private:
  struct item {
    enum { op, wait, stop } what = op;
    op_label label{};
    void (*call)(void*) = nullptr;
    worker* other = nullptr;
    std::uint64_t ticket = 0;
    alignas(std::max_align_t) std::byte task[task_bytes];
  };

  item& next() noexcept {
    std::uint64_t const capacity = ring_.size();
    if (issued_ - known_completed_ >= capacity)
      known_completed_ = completed_.wait_for(issued_ + 1 - capacity);
    return ring_[issued_ & mask_];
  }
  void publish() noexcept { published_.raise_to(++issued_); }

  void work() noexcept {
    std::uint64_t available = 0;
    for (std::uint64_t done = 0;; ++done) {
      if (available <= done) available = published_.wait_for(done + 1, look_);
      item& it = ring_[done & mask_];
      if (it.what == item::stop) return;
      if (it.what == item::wait)
        it.other->wait_until_completed(it.ticket, look_);
      else if (!board_.failed())
        run(it);
      completed_.raise_to(done + 1);
    }
  }

  void run(item& it) {
    if (random_) shake();
    bool const recorded = spans_.size() < spans_.capacity();
    double const start = recorded ? now_us() : 0;
    failure what{rank_, true, it.label, {}, {}};
    try {
      stretto::detail::place_scope const here(stretto::detail::place_of(it.label));
      it.call(it.task);
    } catch (std::exception const& error) {
      what.reason = error.what();
      what.original = std::current_exception();
    } catch (...) {
      what.reason = "it threw something that is no std::exception";
      what.original = std::current_exception();
    }
    if (recorded) spans_.push_back({it.label, rank_, start, now_us()});
    board_.note_progress();
    // After the handler, so that this thread no longer holds the exception when the host may rethrow it.
    if (what.original) board_.report(std::move(what));
  }

  void shake() {
    std::uint64_t const draw = next_random();
    // A quarter of the ops start at once: a constant rhythm of delays would hide some interleavings.
    if (draw % 4 == 0) return;
    double const part = static_cast<double>(draw >> 40) / static_cast<double>(std::uint64_t{1} << 24);
    std::this_thread::sleep_for(duration_of_us(shake_us_ * part));
  }
  /// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
  std::uint64_t next_random() noexcept {
    random_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = random_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
  static std::uint64_t mix(std::uint64_t seed, int rank, lane on) noexcept {
    return (seed * 1000003u + static_cast<std::uint64_t>(rank)) * 8u + static_cast<std::uint64_t>(on) + 1u;
  }
  static std::size_t power_of_two(std::size_t at_least) noexcept {
    std::size_t size = 2;
    while (size < at_least) size *= 2;
    return size;
  }

  failure_board& board_;
  int const rank_;
  std::vector<item> ring_;
  std::uint64_t const mask_;
  std::vector<span> spans_;
  clock::duration const look_;
  double const shake_us_;
  std::uint64_t random_;

  // Each on a cache line of its own: the host writes the first group, the worker the second.
  alignas(64) std::uint64_t issued_ = 0;
  std::uint64_t known_completed_ = 0;
  counter published_;
  counter started_;
  alignas(64) counter completed_;
  std::thread thread_;
};

} // namespace host
} // namespace v0
} // namespace stretto
