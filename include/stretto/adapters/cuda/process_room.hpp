#pragma once

#include <stretto/adapters/cuda/exchange_options.hpp>
#include <stretto/adapters/cuda/ipc_memory.hpp>
#include <stretto/adapters/cuda/shared_segment.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// What the ranks of one `process_exchange` share: what each tells of its calls, and flags for their streams.
class process_room {
public:
  enum kind : std::size_t { ready, done, kinds };

  /// Without a name a new one.
  process_room(std::size_t ranks, std::size_t me, exchange_options const& options, std::string const& name)
      : ranks_(ranks), me_(me), options_(options), segment_(open(name, bytes_for(ranks))),
        expected_(ranks * kinds), guard_([this] { stand_guard(); }) {}
  process_room(process_room const&) = delete;
  process_room& operator=(process_room const&) = delete;
  ~process_room() {
    {
      std::lock_guard const lock(mutex_);
      ends_ = true;
    }
    wake_.notify_all();
    guard_.join();
  }

  std::string const& name() const { return segment_->name(); }
  void hide() { segment_->hide(); }

  // In turn: who posts a call has seen every rank post the one before, and so done with the one before that.
  std::size_t* places(std::size_t rank, std::uint64_t call) const { return sizes(rank, call); }
  std::size_t* blocks(std::size_t rank, std::uint64_t call) const { return sizes(rank, call) + ranks_ + 1; }
  ipc_place& receive(std::size_t rank, std::uint64_t call) const {
    return *reinterpret_cast<ipc_place*>(sizes(rank, call) + 2 * (ranks_ + 1));
  }

  void post(std::size_t rank, std::uint64_t call) const {
    posted(rank).store(call, std::memory_order_release);
  }
  /// Throws where the exchange was given up before: its streams wait for nothing any more.
  void require_open(std::uint64_t call) const {
    if (given_up().load() != 0) throw_given_up(call);
  }
  /// Returns when that rank has posted the call. Throws after the deadline, and when the exchange was given up.
  void await(std::size_t rank, std::uint64_t call) const {
    auto const begun = std::chrono::steady_clock::now();
    for (int look = 0; posted(rank).load(std::memory_order_acquire) < call; ++look) {
      if (look < 1000) continue;
      if (look < 3000) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (is_given_up()) throw_given_up(call);
      if (std::chrono::steady_clock::now() - begun > options_.deadline)
        throw std::runtime_error(name_of(call) + ": rank " + std::to_string(rank) + " did not come within " +
                                 std::to_string(options_.deadline.count()) + " ms");
    }
  }
  void give_up() const { given_up().store(1); }

  /// The flag that streams of `owner` wait for and those of `other` raise, for streams of this process.
  std::uint32_t* flag(std::size_t owner, std::size_t other, kind which) const {
    return reinterpret_cast<std::uint32_t*>(segment_->on_gpu() + flag_place(owner, other, which));
  }

  /// A stream of this rank waits until that flag of `other` has come to `how_many`.
  void expect(std::size_t other, kind which, std::uint32_t how_many) {
    expected_[other * kinds + which] = how_many;
  }

private:
  /// What different ranks write lies on lines of its own.
  static constexpr std::size_t line = 128;
  using count = std::atomic_ref<std::uint64_t>;

  static constexpr std::size_t lines(std::size_t bytes) { return (bytes + line - 1) / line * line; }
  static std::size_t note_bytes(std::size_t ranks) {
    static_assert(std::is_trivially_copyable_v<ipc_place> && alignof(ipc_place) <= alignof(std::size_t));
    return lines(2 * (ranks + 1) * sizeof(std::size_t) + sizeof(ipc_place));
  }
  static std::size_t bytes_for(std::size_t ranks) {
    std::size_t const page = 65536;
    std::size_t const all = (1 + ranks) * line + 2 * ranks * note_bytes(ranks) + ranks * ranks * kinds * line;
    return (all + page - 1) / page * page;
  }
  static std::unique_ptr<shared_segment> open(std::string const& name, std::size_t bytes) {
    return name.empty() ? std::make_unique<shared_segment>(bytes)
                        : std::make_unique<shared_segment>(name, bytes);
  }

  count given_up() const { return count(*reinterpret_cast<std::uint64_t*>(segment_->data())); }
  count posted(std::size_t rank) const {
    return count(*reinterpret_cast<std::uint64_t*>(segment_->data() + (1 + rank) * line));
  }
  std::size_t* sizes(std::size_t rank, std::uint64_t call) const {
    std::size_t const place = (1 + ranks_) * line + (2 * rank + call % 2) * note_bytes(ranks_);
    return reinterpret_cast<std::size_t*>(segment_->data() + place);
  }
  std::size_t flag_place(std::size_t owner, std::size_t other, std::size_t which) const {
    return (1 + ranks_) * line + 2 * ranks_ * note_bytes(ranks_) +
           ((owner * ranks_ + other) * kinds + which) * line;
  }

  static std::string name_of(std::uint64_t call) {
    return "call " + std::to_string(call) + " of a process_exchange";
  }
  [[noreturn]] static void throw_given_up(std::uint64_t call) {
    throw std::runtime_error(name_of(call) + " given up: a rank has failed");
  }
  bool is_given_up() const { return given_up().load() != 0 || (options_.failed && options_.failed()); }

  /// Lets go the streams of this rank when a rank has failed.
  void stand_guard() {
    std::unique_lock lock(mutex_);
    while (!ends_) {
      bool const over = is_given_up() || is_stuck();
      if (over) {
        give_up();
        for (std::size_t other = 0; other < ranks_; ++other)
          for (std::size_t which = 0; which < kinds; ++which) raise_far(other, which);
      }
      // Ranks that live may still write what they had issued.
      wake_.wait_for(lock, std::chrono::milliseconds(over ? 1 : 20));
    }
  }
  /// Whether streams of this rank wait and no flag has moved until the deadline: a rank may die when nobody waits for it on
  /// the host.
  bool is_stuck() {
    bool waits = false;
    std::uint64_t sum = 0;
    for (std::size_t other = 0; other < ranks_; ++other)
      for (std::size_t which = 0; which < kinds; ++which) {
        std::uint32_t const expected = expected_[other * kinds + which], found = flag_at(other, which).load();
        waits = waits || static_cast<std::int32_t>(found - expected) < 0;
        sum += std::uint64_t{expected} + found;
      }
    auto const now = std::chrono::steady_clock::now();
    if (!waits || sum != last_sum_) moved_ = now;
    last_sum_ = sum;
    return now - moved_ > options_.deadline;
  }
  /// That of this rank.
  std::atomic_ref<std::uint32_t> flag_at(std::size_t other, std::size_t which) const {
    return std::atomic_ref(
        *reinterpret_cast<std::uint32_t*>(segment_->data() + flag_place(me_, other, which)));
  }
  /// Beyond whatever a stream waits for: a quarter of the way round.
  void raise_far(std::size_t other, std::size_t which) const {
    flag_at(other, which).store(posted_32() + 0x40000000u, std::memory_order_release);
  }
  std::uint32_t posted_32() const { return static_cast<std::uint32_t>(posted(me_).load()); }

  std::size_t const ranks_, me_;
  exchange_options const& options_;
  std::unique_ptr<shared_segment> segment_;
  std::vector<std::atomic<std::uint32_t>> expected_;
  std::uint64_t last_sum_ = 0; ///< of the guard
  std::chrono::steady_clock::time_point moved_ = std::chrono::steady_clock::now();
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ends_ = false;
  std::thread guard_;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
