#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/blocks.hpp>
#include <stretto/adapters/cuda/capture.hpp>
#include <stretto/adapters/cuda/exchange_options.hpp>
#include <stretto/adapters/cuda/flags.hpp>
#include <stretto/adapters/cuda/follow.hpp>
#include <stretto/adapters/cuda/handles.hpp>
#include <stretto/adapters/cuda/ipc_memory.hpp>
#include <stretto/adapters/cuda/own_rows.hpp>
#include <stretto/adapters/cuda/process_calls.hpp>
#include <stretto/adapters/cuda/reach.hpp>
#include <stretto/detail/require_own_rows.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// `peer_exchange` between ranks that are processes of one host, each on a GPU of its own or several on one: copy engines
/// push each block to its place in the memory of its receiver (CUDA IPC), which must come from cudaMalloc.
///
/// A call only issues. Host threads meet in every call, to tell where rows go; streams wait for each other by flags in host
/// memory. A rank that does not come to a call within the deadline is named. A failure, and a deadline in which nothing goes
/// on, let go the streams that wait; the exchange is of no use then, and every further call throws. One stream at a time may
/// be in use.
///
/// Calls with fixed rows may be part of a graph, of one for each rank, if all ranks capture the same ones and each has a GPU to
/// itself. The ranks must have met between the capture and the first replay, and `note_launch` tells of each replay.
template <row_exchange Ranks, stream_follower Current = thread_stream> class process_exchange {
public:
  static constexpr bool capturable = true;

  /// Collective over the ranks. `ranks` is any exchange of host memory between them.
  explicit process_exchange(Ranks ranks, Current current = {}, exchange_options options = {})
      : ranks_(std::move(ranks)), current_(std::move(current)),
        size_(static_cast<std::size_t>(ranks_.ranks())), me_(static_cast<std::size_t>(ranks_.rank())) {
    for (std::size_t i = 1; i < size_; ++i) others_.push_back((me_ + i) % size_);
    shares_gpu_ = detail::require_reach(ranks_, whose);
    room_ = std::make_unique<detail::process_calls>(ranks_, std::move(options));
  }
  process_exchange(process_exchange const&) = delete;
  process_exchange& operator=(process_exchange const&) = delete;
  /// When its last call is done.
  ~process_exchange() { ended_.try_synchronize(); }

  int rank() const { return ranks_.rank(); }
  int ranks() const { return ranks_.ranks(); }
  /// The exchange of host memory that this one stands on.
  Ranks& host() { return ranks_; }
  static constexpr bool rows_on_device() { return true; }

  /// The counts lie in host memory.
  void exchange_counts(int const* send_rows, int* counts) { ranks_.exchange_counts(send_rows, counts); }

  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    cudaStream_t const here = current_.current();
    captured_ = is_capturing(here);
    if (captured_ && shares_gpu_)
      throw std::logic_error(
          "process_exchange: a call of ranks that share a GPU cannot be captured, since graphs that wait for "
          "each other there get stuck; give each a GPU of its own");
    try {
      room_->require_open(++calls_);
      stretto::detail::require_own_rows(send_rows, receive_rows, rank(), 1, whose);
      detail::place_blocks(send_rows, size_, row_bytes, room_->blocks(me_, calls_), whose);
      detail::place_blocks(receive_rows, size_, row_bytes, room_->places(me_, calls_), whose);
      room_->is_captured(me_, calls_) = captured_;
      issue(static_cast<std::byte const*>(send), static_cast<std::byte*>(receive), here);
      if (!captured_) ended_.record(here);
    } catch (...) {
      room_->give_up();
      own_.try_join(here);
      if (!captured_) ended_.try_record(here);
      throw;
    }
  }

  /// Behind every launch of a graph that calls are part of: streams have the deadline from here on.
  void note_launch() const { room_->note_launch(); }

private:
  using kind = detail::process_calls::kind;
  static constexpr char const* whose = "process_exchange";

  void issue(std::byte const* out, std::byte* in, cudaStream_t here) {
    if (captured_) ops_.write(room_->at_work(), ++captures_).issue(here);
    if (to(me_) > 0) begun_.record(here);
    own_.copy(in + room_->places(me_, calls_)[me_], out + room_->blocks(me_, calls_)[me_], to(me_), begun_);
    if (room_->places(me_, calls_)[size_] > from(me_)) {
      detail::allocating_in_capture const allowed;
      room_->receive(me_, calls_) = exporter_.place_of(in);
    }
    room_->post(me_, calls_);
    for (std::size_t const other : others_) {
      room_->await(other, calls_);
      if (room_->is_captured(other, calls_) != room_->is_captured(me_, calls_))
        throw std::logic_error("process_exchange: of rank " + std::to_string(me_) + " and rank " +
                               std::to_string(other) + " one captures its call and the other does not");
      detail::require_same_bytes(whose, other, block(other, me_), me_, from(other));
      detail::require_same_bytes(whose, me_, to(other), other, place_size(other, me_));
    }
    // Written with what comes next. The deadline of waits begins when the stream comes here, whatever it has to do before.
    if (!captured_) ops_.write(room_->at_call(), count());
    for (std::size_t const source : others_)
      if (from(source) > 0) tell(source, kind::ready, kind::replay_ready);
    for (std::size_t const target : others_) {
      if (to(target) == 0) continue;
      wait_for(target, kind::ready, kind::replay_ready);
      ops_.issue(here);
      detail::copy_bytes(address_of(target) + room_->places(target, calls_)[me_],
                         out + room_->blocks(me_, calls_)[target], to(target), here);
      tell(target, kind::done, kind::replay_done);
    }
    for (std::size_t const source : others_)
      if (from(source) > 0) wait_for(source, kind::done, kind::replay_done);
    if (captured_) ops_.write(room_->at_work(), 0);
    ops_.issue(here);
    own_.join(here);
  }

  // A call by itself counts. Every replay of a graph writes the same, so there a flag is lowered by who has waited for it: it is
  // raised again behind an answer to that.
  void tell(std::size_t other, kind which, kind in_replays) {
    ops_.write(room_->flag(other, me_, captured_ ? in_replays : which), captured_ ? 1 : count());
  }
  void wait_for(std::size_t other, kind which, kind in_replays) {
    if (captured_) {
      auto* const flag = room_->flag(me_, other, in_replays);
      ops_.wait_for_at_least(flag, 1).write(flag, 0);
      return;
    }
    room_->expect(other, which, count());
    ops_.wait_for_at_least(room_->flag(me_, other, which), count());
  }
  std::uint32_t count() const { return static_cast<std::uint32_t>(calls_); }
  std::byte* address_of(std::size_t target) {
    detail::allocating_in_capture const allowed;
    return importer_.address_of(target, room_->receive(target, calls_));
  }

  std::size_t block(std::size_t rank, std::size_t target) const {
    auto const* const at = room_->blocks(rank, calls_);
    return at[target + 1] - at[target];
  }
  std::size_t place_size(std::size_t rank, std::size_t source) const {
    auto const* const at = room_->places(rank, calls_);
    return at[source + 1] - at[source];
  }
  std::size_t to(std::size_t target) const { return block(me_, target); }
  std::size_t from(std::size_t source) const { return place_size(me_, source); }

  Ranks ranks_;
  Current current_;
  std::size_t const size_, me_;
  std::vector<std::size_t> others_;
  std::unique_ptr<detail::process_calls> room_;
  std::uint64_t calls_ = 0;
  std::uint32_t captures_ = 0; ///< calls in graphs
  bool shares_gpu_ = false, captured_ = false;
  detail::ipc_exporter exporter_;
  detail::ipc_importer importer_;
  flag_ops ops_;
  edge begun_, ended_;
  // Last, so that nothing is copied any more when the rest goes.
  detail::own_rows own_;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
