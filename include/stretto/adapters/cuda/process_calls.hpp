#pragma once

#include <stretto/adapters/cuda/ipc_memory.hpp>
#include <stretto/adapters/cuda/process_room.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// What each rank of a `process_exchange` tells the others of its calls, and flags for their streams.
class process_calls {
public:
  /// Those of calls that are captured are raised to 1 and lowered again by who waits for them, in every replay.
  enum kind : std::size_t { ready, done, replay_ready, replay_done, kinds };

  template <row_exchange Ranks>
  process_calls(Ranks& ranks, exchange_options options)
      : ranks_(static_cast<std::size_t>(ranks.ranks())), me_(static_cast<std::size_t>(ranks.rank())),
        room_(ranks, flag_place(ranks_, own_flags), std::move(options), "process_exchange") {
    // Who is ready may still owe rows because of another that is not: that one is named.
    for (std::size_t which = 0; which < kinds; ++which)
      for (std::size_t other = 0; other < ranks_; ++other)
        watched_.push_back(room_.watch(host_flag(me_, other, which), other));
    room_.watch_work(host_flag(me_, ranks_, in_graph));
  }

  // In turn: who posts a call has seen every rank post the one before, and so done with the one before that.
  std::size_t* places(std::size_t rank, std::uint64_t call) const { return sizes(rank, call); }
  std::size_t* blocks(std::size_t rank, std::uint64_t call) const { return sizes(rank, call) + ranks_ + 1; }
  std::size_t& is_captured(std::size_t rank, std::uint64_t call) const {
    return sizes(rank, call)[2 * (ranks_ + 1)];
  }
  ipc_place& receive(std::size_t rank, std::uint64_t call) const {
    return *reinterpret_cast<ipc_place*>(sizes(rank, call) + 2 * (ranks_ + 1) + 1);
  }

  void post(std::size_t rank, std::uint64_t call) const {
    posted(rank).store(call, std::memory_order_release);
  }
  /// Returns when that rank has posted the call. Throws after the deadline, and when the exchange was given up.
  void await(std::size_t rank, std::uint64_t call) const {
    auto const deadline = room_.options().deadline;
    auto const begun = std::chrono::steady_clock::now();
    for (int look = 0; posted(rank).load(std::memory_order_acquire) < call; ++look) {
      if (look < 1000) continue;
      if (look < 3000) {
        std::this_thread::yield();
        continue;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (room_.is_given_up()) process_room::throw_given_up(name_of(call));
      if (std::chrono::steady_clock::now() - begun > deadline)
        throw std::runtime_error(name_of(call) + ": rank " + std::to_string(rank) + " did not come within " +
                                 std::to_string(deadline.count()) + " ms");
    }
  }
  /// Throws where the exchange was given up before.
  void require_open(std::uint64_t call) const { room_.require_open(name_of(call)); }
  void give_up() const { room_.give_up(); }

  /// The flag that streams of `owner` wait for and those of `other` raise, for streams of this process.
  std::uint32_t* flag(std::size_t owner, std::size_t other, kind which) const {
    return room_.for_streams(host_flag(owner, other, which));
  }
  /// Which call of a graph streams of this rank are in, 0 between them.
  std::uint32_t* at_work() const { return room_.for_streams(host_flag(me_, ranks_, in_graph)); }
  /// Which call, outside of graphs, streams of this rank have come to.
  std::uint32_t* at_call() const { return room_.for_streams(host_flag(me_, ranks_, by_itself)); }
  void note_launch() const { room_.note_move(); }
  /// A stream of this rank waits until that flag of `other` has come to `how_many`.
  void expect(std::size_t other, kind which, std::uint32_t how_many) {
    room_.expect(watched_[which * ranks_ + other], how_many, host_flag(me_, ranks_, by_itself));
  }

private:
  using count = std::atomic_ref<std::uint64_t>;
  enum own_flag : std::size_t { in_graph, by_itself, own_flags };
  static constexpr std::size_t line = process_room::line;

  std::size_t note_bytes() const {
    static_assert(std::is_trivially_copyable_v<ipc_place> && alignof(ipc_place) <= alignof(std::size_t));
    return process_room::lines((2 * (ranks_ + 1) + 1) * sizeof(std::size_t) + sizeof(ipc_place));
  }
  count posted(std::size_t rank) const { return count(*reinterpret_cast<std::uint64_t*>(room_.part(rank))); }
  std::size_t* sizes(std::size_t rank, std::uint64_t call) const {
    return reinterpret_cast<std::size_t*>(room_.part(rank) + line + call % 2 * note_bytes());
  }
  std::size_t flag_place(std::size_t other, std::size_t which) const {
    return line + 2 * note_bytes() + (other * kinds + which) * line;
  }
  std::uint32_t* host_flag(std::size_t owner, std::size_t other, std::size_t which) const {
    return reinterpret_cast<std::uint32_t*>(room_.part(owner) + flag_place(other, which));
  }
  static std::string name_of(std::uint64_t call) {
    return "call " + std::to_string(call) + " of a process_exchange";
  }

  std::size_t const ranks_, me_;
  process_room room_;
  std::vector<std::size_t> watched_;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
