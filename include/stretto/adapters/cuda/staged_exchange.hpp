#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/blocks.hpp>
#include <stretto/adapters/cuda/capture.hpp>
#include <stretto/adapters/cuda/exchange_options.hpp>
#include <stretto/adapters/cuda/follow.hpp>
#include <stretto/adapters/cuda/own_rows.hpp>
#include <stretto/adapters/cuda/share.hpp>
#include <stretto/adapters/cuda/staging.hpp>
#include <stretto/detail/require_own_rows.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// An all-to-all of device rows between ranks that are threads of one process, each on a GPU of its own or several on one:
/// a `row_exchange` whose rows lie in device memory. Blocks go through pinned host memory by copy engines, both directions of
/// the bus at once, so that no multiprocessor is taken from compute. The own block is copied beside them on the device.
///
/// A call only issues: it reads and writes behind what the current stream (`Current`) has done, and what that stream does
/// next runs behind the call. The host threads of the ranks meet in every call, over `Ranks`, any exchange of host memory
/// between threads of this process; it brings deadlines and failures.
///
/// Calls with fixed rows may be part of a graph if the streams of all ranks are part of one capture. When it begins, and
/// between a replay and other calls, nothing of the exchange is under way on any rank; the exchange outlives the graph.
template <row_exchange Ranks, stream_follower Current = thread_stream> class staged_exchange {
public:
  static constexpr bool capturable = true;

  /// Collective over the ranks. Deadline and failure are those of `ranks`.
  explicit staged_exchange(Ranks ranks, Current current = {}, exchange_options options = {})
      : ranks_(std::move(ranks)), current_(std::move(current)), options_(std::move(options)),
        size_(static_cast<std::size_t>(ranks_.ranks())), me_(static_cast<std::size_t>(ranks_.rank())),
        own_staging_(std::make_shared<detail::staging>()), ones_(size_, 1), first_(size_ + 1),
        places_(size_ + 1), to_(size_), from_(size_) {
    stagings_ = detail::share(own_staging_, ranks_);
    int gpu = 0;
    check(cudaGetDevice(&gpu), "cudaGetDevice");
    auto const gpus = detail::of_all(ranks_, gpu);
    shares_gpu_ = std::count(gpus.begin(), gpus.end(), gpu) > 1;
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
    enter(detail::capture_of(here));
    stretto::detail::require_own_rows(send_rows, receive_rows, rank(), 1, "staged_exchange");
    detail::place_blocks(send_rows, size_, row_bytes, first_.data(), "staged_exchange");
    detail::place_blocks(receive_rows, size_, row_bytes, places_.data(), "staged_exchange");
    std::size_t const own = first_[me_ + 1] - first_[me_];

    begun_.record(here);
    auto& mine = own_staging_->buffers[turn_++ % 2];
    std::size_t chunk = 0;
    try {
      own_.copy(in + places_[me_], out + first_[me_], own, begun_);
      chunk = send_out(mine, out, own, here);
    } catch (...) {
      own_.try_join(here);
      throw;
    }
    own_.join(here);
    post(mine, own, chunk);
    {
      detail::waiting_for_ranks const here_too(options_);
      ranks_.all_to_all(to_.data(), ones_.data(), from_.data(), ones_.data(), sizeof(detail::posted_block));
    }
    for (std::size_t s = 0; s < size_; ++s) {
      if (s == me_) continue;
      if (from_[s].capture != capture_)
        throw std::logic_error("staged_exchange: rank " + std::to_string(me_) + " and rank " +
                               std::to_string(s) +
                               " are not in the same capture; capture the streams of all ranks together");
      if (from_[s].bytes != static_cast<std::size_t>(receive_rows[s]) * row_bytes)
        throw std::invalid_argument("staged_exchange: rank " + std::to_string(s) + " sends " +
                                    std::to_string(from_[s].bytes) + " bytes to rank " + std::to_string(me_) +
                                    ", which expects " + std::to_string(receive_rows[s]) + " rows of " +
                                    std::to_string(row_bytes));
      if (first_[s + 1] > first_[s]) mine.readers.push_back(from_[s].fetched);
    }
    begun_.wait(arrivals_.get());
    fetch(in, receive_rows, row_bytes);
    mine.fetched.record(arrivals_.get());
    mine.fetched.wait(here);
  }

private:
  /// Of two directions one waits for the first chunk and the other for the last, and each chunk costs as much time as
  /// `chunk_cost` bytes (measured): the sum of both is least at the root of their product. Where ranks share a GPU its link is
  /// busy with the other's blocks meanwhile.
  std::size_t chunk_of(std::size_t bytes) const {
    if (shares_gpu_) return (std::max)(bytes, std::size_t{1});
    constexpr std::size_t chunk_cost = 200 << 10, smallest = 512 << 10, unit = 64 << 10;
    auto const best = static_cast<std::size_t>(std::sqrt(static_cast<double>(bytes) * chunk_cost));
    std::size_t const most = detail::staging::most_chunks;
    return ((std::max)({smallest, best, (bytes + most - 1) / most}) + unit - 1) / unit * unit;
  }

  /// What ran before a capture is over, and what a capture recorded means nothing outside of it.
  void enter(unsigned long long capture) {
    if (capture == capture_) return;
    capture_ = capture;
    for (auto& each : own_staging_->buffers) each.readers.clear();
  }

  void make_room(detail::staging::buffer& mine, std::size_t bytes) {
    if (bytes > mine.memory->size()) {
      std::size_t const enough = (std::max)(bytes, 2 * mine.memory->size());
      if (mine.is_in_graph || capture_ != 0) {
        detail::allocating_in_capture const allowed;
        own_staging_->outgrown.push_back(std::exchange(mine.memory, std::make_unique<pinned_buffer>()));
        mine.memory->grow(enough);
        mine.is_in_graph = false;
      } else {
        for (auto const reader : mine.readers) check(cudaEventSynchronize(reader), "cudaEventSynchronize");
        for (auto const& chunk : mine.sent) chunk.synchronize();
        mine.readers.clear();
        mine.memory->grow(enough);
      }
    }
    if (capture_ != 0) mine.is_in_graph = true;
  }

  /// Fills the buffer with all blocks but the own one, which leaves no gap; returns the size of the chunks.
  std::size_t send_out(detail::staging::buffer& mine, std::byte const* out, std::size_t own,
                       cudaStream_t here) {
    std::size_t const bytes = first_[size_] - own;
    make_room(mine, bytes);
    if (bytes > 0) {
      // From here on the events of what is sent stand for the readers too.
      for (auto const reader : mine.readers)
        check(cudaStreamWaitEvent(here, reader, 0), "cudaStreamWaitEvent");
      mine.readers.clear();
    }
    std::size_t const chunk = chunk_of(bytes);
    std::size_t const gap = first_[me_];
    for (std::size_t begin = 0, k = 0; begin < bytes; begin += chunk, ++k) {
      std::size_t const end = (std::min)(bytes, begin + chunk);
      std::size_t const middle = std::clamp(gap, begin, end);
      if (middle > begin)
        detail::copy_bytes(mine.memory->data() + begin, out + begin, middle - begin, here,
                           cudaMemcpyDeviceToHost);
      if (end > middle)
        detail::copy_bytes(mine.memory->data() + middle, out + middle + own, end - middle, here,
                           cudaMemcpyDeviceToHost);
      mine.sent[k].record(here);
    }
    return chunk;
  }

  void post(detail::staging::buffer& mine, std::size_t own, std::size_t chunk) {
    for (std::size_t d = 0; d < size_; ++d)
      to_[d] = {mine.memory->data(),
                first_[d] - (d > me_ ? own : 0),
                d == me_ ? 0 : first_[d + 1] - first_[d],
                chunk,
                mine.handles,
                mine.fetched.made(),
                capture_};
  }

  void fetch(std::byte* in, int const* rows, std::size_t row_bytes) {
    for (std::size_t k = 0; k < detail::staging::most_chunks; ++k) {
      std::byte* block = in;
      for (std::size_t s = 0; s < size_; block += static_cast<std::size_t>(rows[s]) * row_bytes, ++s) {
        auto const& from = from_[s];
        if (s == me_ || from.bytes == 0) continue;
        std::size_t const begin = (std::max)(from.first, k * from.chunk);
        std::size_t const end = (std::min)(from.first + from.bytes, (k + 1) * from.chunk);
        if (begin >= end) continue;
        check(cudaStreamWaitEvent(arrivals_.get(), from.sent[k], 0), "cudaStreamWaitEvent");
        detail::copy_bytes(block + (begin - from.first), from.buffer + begin, end - begin, arrivals_.get(),
                           cudaMemcpyHostToDevice);
      }
    }
  }

  Ranks ranks_;
  Current current_;
  exchange_options const options_;
  std::size_t const size_, me_;
  std::shared_ptr<detail::staging> own_staging_;
  std::vector<std::shared_ptr<detail::staging>> stagings_;
  bool shares_gpu_ = false;
  std::size_t turn_ = 0;
  unsigned long long capture_ = 0;
  std::vector<int> ones_;
  std::vector<std::size_t> first_, places_; ///< of what leaves and of what arrives
  std::vector<detail::posted_block> to_, from_;
  edge begun_;
  // Last, so that nothing runs on them any more when the buffers go.
  stream arrivals_{urgency::high};
  detail::own_rows own_;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
