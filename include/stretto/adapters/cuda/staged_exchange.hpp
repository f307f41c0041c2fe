#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/follow.hpp>
#include <stretto/adapters/cuda/staging.hpp>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// An all-to-all of device rows between ranks that are threads of one process and share a GPU: a `row_exchange` whose rows
/// lie in device memory. Blocks go through pinned host memory by copy engines, both directions of the bus at once, so that
/// no multiprocessor is taken from compute. The own block is copied beside them on the device.
///
/// A call only issues: it reads and writes behind what the current stream (`Current`) has done, and what that stream does
/// next runs behind the call. The host threads of the ranks meet in every call, over `Ranks`, any exchange of host memory
/// between threads of this process; it brings deadlines and failures.
///
/// In a capture (every rank captures) the streams synchronise by flags, which each replay leaves as it found them: all
/// ranks replay the same calls in the same order. `meet` before a replay brings the deadline and mends what a failed step
/// has left; the exchange outlives the graphs.
template <row_exchange Ranks, stream_follower Current = thread_stream> class staged_exchange {
public:
  static constexpr bool capturable = true;

  /// Collective over the ranks. The deadline is that of `ranks`.
  explicit staged_exchange(Ranks ranks, Current current = {}, exchange_options options = {})
      : ranks_(std::move(ranks)), current_(std::move(current)), options_(std::move(options)),
        size_(static_cast<std::size_t>(ranks_.ranks())), me_(static_cast<std::size_t>(ranks_.rank())),
        own_staging_(std::make_shared<detail::staging>(size_)), ones_(size_, 1), scratch_(size_),
        first_(size_ + 1), to_(size_), from_(size_) {
    std::vector<std::shared_ptr<detail::staging> const*> mine(size_, &own_staging_), theirs(size_);
    ranks_.all_to_all(mine.data(), ones_.data(), theirs.data(), ones_.data(), sizeof(mine[0]));
    for (auto const* each : theirs) stagings_.push_back(*each);
    // Nobody goes on before all have taken their share.
    wait_for_all();
    flags_ = stagings_[0]->flags;
  }
  staged_exchange(staged_exchange const&) = delete;
  staged_exchange& operator=(staged_exchange const&) = delete;

  int rank() const { return ranks_.rank(); }
  int ranks() const { return ranks_.ranks(); }
  /// The exchange of host memory that this one stands on.
  Ranks& host() { return ranks_; }
  static constexpr bool rows_on_device() { return true; }

  /// The counts lie in host memory.
  void exchange_counts(int const* send_rows, int* counts) { ranks_.exchange_counts(send_rows, counts); }

  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    auto const* const out = static_cast<std::byte const*>(send);
    auto* const in = static_cast<std::byte*>(receive);
    cudaStream_t const here = current_.current();
    bool const capturing = is_capturing(here);
    if (capturing) {
      if (flags_->is_broken()) mend();
      flags_->watch(options_.failed);
    }
    place(send_rows, row_bytes);
    std::size_t const own = static_cast<std::size_t>(send_rows[me_]) * row_bytes;
    std::size_t own_place = 0;
    for (std::size_t s = 0; s < me_; ++s) own_place += static_cast<std::size_t>(receive_rows[s]) * row_bytes;

    begun_.record(here);
    if (own > 0) {
      begun_.wait(beside_.get());
      copy(in + own_place, out + first_[me_], own, cudaMemcpyDeviceToDevice, beside_.get());
      own_copied_.record(beside_.get());
    }
    std::size_t const turn = capturing ? captured_calls_++ % 2 : calls_++ % 2;
    auto& mine = capturing ? own_staging_->captured[turn] : own_staging_->buffers[turn];
    try {
      make_room(mine, first_[size_] - own, capturing);
      if (capturing)
        take_back(turn, here);
      else if (first_[size_] > own)
        wait_for_readers(mine, here);
      std::size_t const chunk = send_out(mine, out, own, here, capturing, turn);
      if (own > 0) own_copied_.wait(here);
      post(mine, own, chunk, capturing);
      ranks_.all_to_all(to_.data(), ones_.data(), from_.data(), ones_.data(), sizeof(detail::posted_block));
      for (std::size_t s = 0; s < size_; ++s)
        if (s != me_) require_fit(s, receive_rows[s], row_bytes, capturing);
      for (std::size_t s = 0; s < size_ && !capturing; ++s)
        if (s != me_ && first_[s + 1] > first_[s]) mine.readers.push_back(from_[s].fetched);
      begun_.wait(arrivals_.get());
      fetch(mine, in, receive_rows, row_bytes, capturing, turn);
      mine.fetched.record(arrivals_.get());
      mine.fetched.wait(here);
    } catch (...) {
      if (capturing) flags_->set_broken(true);
      throw;
    }
  }

  /// Collective on the host, before a replay of captured calls.
  void meet() {
    if (flags_->is_broken()) return mend();
    wait_for_all();
  }

private:
  static constexpr std::size_t smallest_chunk = std::size_t{4} << 20;

  static void copy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind how, cudaStream_t on) {
    check(cudaMemcpyAsync(to, from, bytes, how, on), "cudaMemcpyAsync");
  }

  /// Where the block for each rank begins in what is sent.
  void place(int const* rows, std::size_t row_bytes) {
    for (std::size_t d = 0; d < size_; ++d) {
      if (rows[d] < 0) throw std::invalid_argument("staged_exchange: a negative number of rows");
      first_[d + 1] = first_[d] + static_cast<std::size_t>(rows[d]) * row_bytes;
    }
  }

  void make_room(detail::staging::buffer& mine, std::size_t bytes, bool capturing) {
    if (bytes <= mine.memory->size()) return;
    std::size_t const enough = (std::max)(bytes, 2 * mine.memory->size());
    if (capturing) {
      allocating_in_capture const allowed;
      own_staging_->outgrown.push_back(std::exchange(mine.memory, std::make_unique<pinned_buffer>()));
      mine.memory->grow(enough);
    } else {
      for (auto const reader : mine.readers) check(cudaEventSynchronize(reader), "cudaEventSynchronize");
      for (auto const& chunk : mine.sent) chunk.synchronize();
      mine.readers.clear();
      mine.memory->grow(enough);
    }
  }

  /// Only where something is sent behind it: its events then stand for the readers too.
  static void wait_for_readers(detail::staging::buffer& mine, cudaStream_t here) {
    for (auto const reader : mine.readers) check(cudaStreamWaitEvent(here, reader, 0), "cudaStreamWaitEvent");
    mine.readers.clear();
  }
  /// The same in a capture: behind it the buffer may be filled again.
  void take_back(std::size_t turn, cudaStream_t here) {
    for (std::size_t d = 0; d < size_; ++d)
      if (d != me_ && first_[d + 1] > first_[d])
        ops_.take(flags_->at(me_, d, detail::staging::is_free(turn)));
    ops_.issue(here);
  }

  /// Fills the buffer with all blocks but the own one, which leaves no gap; returns the size of the chunks.
  std::size_t send_out(detail::staging::buffer& mine, std::byte const* out, std::size_t own,
                       cudaStream_t here, bool capturing, std::size_t turn) {
    std::size_t const bytes = first_[size_] - own;
    std::size_t const chunk =
        (std::max)(smallest_chunk, (bytes + detail::staging::most_chunks - 1) / detail::staging::most_chunks);
    std::size_t const gap = first_[me_];
    chunks_sent_ = 0;
    for (std::size_t begin = 0; begin < bytes; begin += chunk) {
      std::size_t const end = (std::min)(bytes, begin + chunk);
      std::size_t const middle = std::clamp(gap, begin, end);
      if (middle > begin)
        copy(mine.memory->data() + begin, out + begin, middle - begin, cudaMemcpyDeviceToHost, here);
      if (end > middle)
        copy(mine.memory->data() + middle, out + middle + own, end - middle, cudaMemcpyDeviceToHost, here);
      for (std::size_t d = 0; d < size_ && capturing; ++d)
        if (d != me_ && (std::max)(begin, place_of(d, own)) <
                            (std::min)(end, place_of(d, own) + first_[d + 1] - first_[d]))
          ops_.write(flags_->at(d, me_, detail::staging::has_sent(turn, chunks_sent_)), 1);
      ops_.issue(here);
      mine.sent[chunks_sent_++].record(here);
    }
    return chunk;
  }

  /// Where the block for a rank begins in the buffer.
  std::size_t place_of(std::size_t rank, std::size_t own) const {
    return first_[rank] - (rank > me_ ? own : 0);
  }

  void post(detail::staging::buffer& mine, std::size_t own, std::size_t chunk, bool capturing) {
    for (std::size_t d = 0; d < size_; ++d)
      to_[d] = {mine.memory->data(),
                place_of(d, own),
                d == me_ ? 0 : first_[d + 1] - first_[d],
                chunk,
                mine.handles,
                mine.fetched.made(),
                capturing};
  }

  void fetch(detail::staging::buffer& mine, std::byte* in, int const* rows, std::size_t row_bytes,
             bool capturing, std::size_t turn) {
    for (std::size_t k = 0; k < detail::staging::most_chunks; ++k) {
      // No stream waits for a chunk of others before the own one is under way: in a graph the two may share a queue.
      if (capturing && k < chunks_sent_) mine.sent[k].wait(arrivals_.get());
      std::byte* block = in;
      for (std::size_t s = 0; s < size_; block += static_cast<std::size_t>(rows[s]) * row_bytes, ++s) {
        auto const& from = from_[s];
        if (s == me_ || from.bytes == 0) continue;
        std::size_t const begin = (std::max)(from.first, k * from.chunk);
        std::size_t const end = (std::min)(from.first + from.bytes, (k + 1) * from.chunk);
        if (begin >= end) continue;
        if (capturing)
          ops_.take(flags_->at(me_, s, detail::staging::has_sent(turn, k))).issue(arrivals_.get());
        else
          check(cudaStreamWaitEvent(arrivals_.get(), from.sent[k], 0), "cudaStreamWaitEvent");
        copy(block + (begin - from.first), from.buffer + begin, end - begin, cudaMemcpyHostToDevice,
             arrivals_.get());
      }
    }
    for (std::size_t s = 0; s < size_ && capturing; ++s)
      if (s != me_ && from_[s].bytes > 0) ops_.write(flags_->at(s, me_, detail::staging::is_free(turn)), 1);
    ops_.issue(arrivals_.get());
  }

  void require_fit(std::size_t s, int rows, std::size_t row_bytes, bool capturing) const {
    if (from_[s].capturing != capturing)
      throw std::logic_error("staged_exchange: rank " + std::to_string(capturing ? me_ : s) +
                             " captures a call that rank " + std::to_string(capturing ? s : me_) +
                             " runs at once; all ranks capture or none");
    if (from_[s].bytes != static_cast<std::size_t>(rows) * row_bytes)
      throw std::invalid_argument("staged_exchange: rank " + std::to_string(s) + " sends " +
                                  std::to_string(from_[s].bytes) + " bytes to rank " + std::to_string(me_) +
                                  ", which expects " + std::to_string(rows) + " rows of " +
                                  std::to_string(row_bytes));
  }

  void wait_for_all() { ranks_.exchange_counts(ones_.data(), scratch_.data()); }

  /// Collective: a capture or a replay was given up, and the streams of every rank have run dry since.
  void mend() {
    wait_for_all();
    captured_calls_ = 0;
    flags_->set_back(me_);
    if (me_ == 0) flags_->set_broken(false);
    wait_for_all();
  }

  Ranks ranks_;
  Current current_;
  exchange_options const options_;
  std::size_t const size_, me_;
  std::shared_ptr<detail::staging> own_staging_;
  std::vector<std::shared_ptr<detail::staging>> stagings_;
  std::shared_ptr<detail::flag_room> flags_;
  std::size_t calls_ = 0, captured_calls_ = 0, chunks_sent_ = 0;
  flag_ops ops_;
  std::vector<int> ones_, scratch_;
  std::vector<std::size_t> first_;
  std::vector<detail::posted_block> to_, from_;
  edge begun_, own_copied_;
  // Last, so that nothing runs on them any more when the buffers go.
  stream arrivals_{urgency::high}, beside_{urgency::high};
};

} // namespace cuda
} // namespace v0
} // namespace stretto
