#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/exchange_options.hpp>
#include <stretto/adapters/cuda/share.hpp>
#include <stretto/adapters/cuda/shared_segment.hpp>
#include <stretto/detail/op_place.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// What ranks that are processes share: some memory of each, with flags that their streams wait for. A thread of each rank lets
/// go of the streams of that rank when a rank has failed, or when they have come to a wait and nothing has moved on any rank
/// until the deadline. The room is of no use then. It ends when no stream waits for flags of it any more.
class process_room {
public:
  /// What different ranks write lies on lines of its own.
  static constexpr std::size_t line = 128;
  static constexpr std::size_t lines(std::size_t bytes) { return (bytes + line - 1) / line * line; }

  /// Collective over `ranks`, any exchange of host memory between them. `bytes`: of every rank, zeros at first. `name` is whose
  /// room it is, for errors.
  template <row_exchange Ranks>
  process_room(Ranks& ranks, std::size_t bytes, exchange_options options, std::string name)
      : me_(static_cast<std::size_t>(ranks.rank())), part_(lines(bytes)), options_(std::move(options)),
        name_(std::move(name)), segment_(open(ranks, part_)), guard_([this] { stand_guard(); }) {}
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

  exchange_options const& options() const noexcept { return options_; }
  std::byte* part(std::size_t rank) const { return segment_->data() + head + rank * part_; }
  /// A flag in a part, for streams of this process.
  std::uint32_t* for_streams(std::uint32_t* flag) const {
    return reinterpret_cast<std::uint32_t*>(segment_->on_gpu() +
                                            (reinterpret_cast<std::byte*>(flag) - segment_->data()));
  }

  void give_up() const { word(0).store(1); }
  bool is_given_up() const { return word(0).load() != 0 || (options_.failed && options_.failed()); }
  /// Throws where it was given up before: streams wait for nothing any more. `call` is what is refused.
  void require_open(std::string const& call) const {
    if (word(0).load() != 0) throw_given_up(call);
  }
  [[noreturn]] static void throw_given_up(std::string const& call) {
    throw std::runtime_error(call + " given up: a rank has failed");
  }

  /// A flag that streams of this rank wait for and rank `of` writes; returns its number.
  std::size_t watch(std::uint32_t* flag, std::size_t of) {
    std::lock_guard const lock(mutex_);
    watched_.push_back({flag, of, {}, 0});
    return watched_.size() - 1;
  }
  /// A flag that streams of this rank write themselves, another number at each place where they may wait, and 0 where they do
  /// not: of a graph the host cannot say what its streams wait for.
  void watch_work(std::uint32_t* flag) {
    std::lock_guard const lock(mutex_);
    at_work_.push_back(flag);
  }
  /// Something goes on: a graph was launched, which takes the same numbers as before.
  void note_move() const { word(1).fetch_add(1); }
  /// A wait is issued, for the op in progress: a stream that has let `at_wait` come to `value` waits until the flag comes to it.
  /// The values of a flag go up.
  void expect(std::size_t which, std::uint32_t value, std::uint32_t* at_wait) {
    std::lock_guard const lock(mutex_);
    watched_[which].last = value;
    watched_[which].waits.push_back({value, at_wait, stretto::detail::place_in_progress()});
  }

private:
  /// Words that all ranks share: whether they have given up, and how often flags have moved.
  static constexpr std::size_t head = 2 * line;

  static bool has_come(std::uint32_t* flag, std::uint32_t to) {
    return static_cast<std::int32_t>(std::atomic_ref(*flag).load() - to) >= 0;
  }
  struct issued_wait {
    std::uint32_t value;
    std::uint32_t* at_wait;
    stretto::detail::op_place where;
  };
  struct watched_flag {
    std::uint32_t* flag;
    std::size_t writer;
    std::deque<issued_wait> waits; ///< that may not be over
    std::uint32_t last; ///< value of all

    std::atomic_ref<std::uint32_t> found() const { return std::atomic_ref(*flag); }
    void forget_what_is_over() {
      while (!waits.empty() && has_come(flag, waits.front().value)) waits.pop_front();
    }
    /// A stream has come to a wait, and what it waits for has not.
    bool keeps_a_stream() const {
      return !waits.empty() && !has_come(flag, waits.front().value) &&
             has_come(waits.front().at_wait, waits.front().value);
    }
  };

  template <class Ranks> static std::unique_ptr<shared_segment> open(Ranks& ranks, std::size_t part) {
    auto const size = static_cast<std::size_t>(ranks.ranks());
    std::size_t const page = 65536, bytes = (head + size * part + page - 1) / page * page;
    std::unique_ptr<shared_segment> made;
    std::array<char, 64> name{};
    if (ranks.rank() == 0) {
      made = std::make_unique<shared_segment>(bytes);
      made->name().copy(name.data(), name.size() - 1);
    }
    auto const names = of_all(ranks, name);
    if (ranks.rank() != 0) made = std::make_unique<shared_segment>(names[0].data(), bytes);
    // Everybody has opened it.
    meet(ranks);
    made->hide();
    return made;
  }

  std::atomic_ref<std::uint64_t> word(std::size_t which) const {
    return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(segment_->data() + which * line));
  }

  void stand_guard() {
    std::unique_lock lock(mutex_);
    bool is_told = false;
    while (!ends_) {
      bool const over = is_given_up() || is_stuck();
      if (over && !std::exchange(is_told, true)) tell(lock);
      if (over) {
        give_up();
        // A quarter of the way round: beyond whatever a stream waits for.
        for (auto const& each : watched_) each.found().store(each.last + 0x40000000u);
      }
      // Ranks that live may still write what they had issued.
      wake_.wait_for(lock, std::chrono::milliseconds(over ? 1 : 20));
    }
  }

  /// First of all, so that whoever finds its streams idle finds the failure too.
  void tell(std::unique_lock<std::mutex>& lock) {
    auto const is_known = [this] { return !options_.report || (options_.failed && options_.failed()); };
    failure what;
    what.rank = static_cast<int>(me_);
    if (word(0).load() != 0) {
      // Whoever gave up has a moment to say why.
      auto const end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
      while (!is_known() && !ends_ && std::chrono::steady_clock::now() < end)
        wake_.wait_for(lock, std::chrono::milliseconds(5));
      what.reason = name_ + " given up: a rank has failed";
    }
    for (auto const& each : watched_) {
      if (!what.reason.empty() || !each.keeps_a_stream()) continue;
      what.in_op = each.waits.front().where.is_known();
      what.op = label_of(each.waits.front().where);
      what.reason = name_ + ": nothing came from rank " + std::to_string(each.writer) + " within " +
                    std::to_string(options_.deadline.count()) + " ms";
    }
    if (what.reason.empty())
      what.reason = name_ + ": nothing came to a call of a graph within " +
                    std::to_string(options_.deadline.count()) + " ms: a rank is silent";
    if (is_known()) return;
    lock.unlock();
    options_.report(what);
    lock.lock();
  }
  static op_label label_of(stretto::detail::op_place at) {
    return {static_cast<phase_kind>(at.phase), static_cast<pass>(at.what), static_cast<lane>(at.on), at.layer,
            at.microbatch};
  }

  /// Whether streams of this rank wait and no flag of any rank has moved until the deadline: a rank may die when nobody waits
  /// for it on the host.
  bool is_stuck() {
    bool waits = false;
    std::uint64_t sum = 0;
    for (auto& each : watched_) {
      each.forget_what_is_over();
      waits = waits || each.keeps_a_stream();
      sum += std::uint64_t{each.last} + each.found().load();
    }
    for (auto* const each : at_work_) {
      auto const where = std::atomic_ref(*each).load();
      waits = waits || where != 0;
      sum += where;
    }
    // Who waits long may rightly wait for others that work.
    if (std::exchange(last_sum_, sum) != sum) word(1).fetch_add(1);
    auto const now = std::chrono::steady_clock::now();
    auto const moves = word(1).load();
    if (!waits || std::exchange(last_moves_, moves) != moves) moved_ = now;
    return now - moved_ > options_.deadline;
  }

  std::size_t const me_, part_;
  exchange_options const options_;
  std::string const name_;
  std::unique_ptr<shared_segment> segment_;
  std::mutex mutex_;
  std::vector<watched_flag> watched_;
  std::vector<std::uint32_t*> at_work_;
  std::uint64_t last_sum_ = 0, last_moves_ = 0; ///< of the guard
  std::chrono::steady_clock::time_point moved_ = std::chrono::steady_clock::now();
  std::condition_variable wake_;
  bool ends_ = false;
  std::thread guard_;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
