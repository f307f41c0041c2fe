#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/blocks.hpp>
#include <stretto/adapters/cuda/call_counts.hpp>
#include <stretto/adapters/cuda/capture.hpp>
#include <stretto/adapters/cuda/exchange_options.hpp>
#include <stretto/adapters/cuda/follow.hpp>
#include <stretto/adapters/cuda/handles.hpp>
#include <stretto/adapters/cuda/own_rows.hpp>
#include <stretto/adapters/cuda/reach.hpp>
#include <stretto/adapters/cuda/share.hpp>
#include <stretto/adapters/cuda/staged_exchange.hpp>
#include <stretto/detail/part_blocks.hpp>
#include <stretto/detail/require_own_rows.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {

namespace detail {

/// What one rank tells the others about one call.
struct push_call {
  std::byte* receive = nullptr;
  std::size_t parts = 1; ///< blocks for each rank
  stretto::detail::part_blocks places; ///< in `receive`, of each rank
  stretto::detail::part_blocks blocks; ///< in what it sends, for each rank
  edge ready; ///< behind it `receive` may be written
  edge done; ///< behind it all that it sends has arrived
  unsigned long long capture = 0; ///< that the call is part of

  std::size_t from(std::size_t rank) const { return places.of_rank(rank, parts); }
  std::size_t to(std::size_t rank) const { return blocks.of_rank(rank, parts); }
};

/// What the ranks of one `peer_exchange` share, and own together.
struct push_room {
  explicit push_room(std::size_t ranks) : posted(ranks), issued(ranks) {
    for (auto& turn : calls) turn = std::vector<push_call>(ranks);
  }

  call_counts posted, issued;
  /// In turn: who posts a call has seen every rank post the one before, and so done with the one before that.
  std::vector<push_call> calls[2];
  /// A call was given up since the ranks were last in order.
  std::atomic<bool> is_broken{false};
};

} // namespace detail

/// An all-to-all of device rows between ranks that are threads of one process, each on a GPU of its own or several on
/// one: a `row_exchange` whose rows lie in device memory. Copy engines push each block to its place in the memory of its
/// receiver, which no multiprocessor sees. The own block is copied beside them.
///
/// A call only issues: it reads and writes behind what the current stream (`Current`) has done, and what that stream does
/// next runs behind the call. Host threads meet in every call, to tell where rows go. One stream at a time may be in use.
///
/// Calls with fixed rows may be part of a graph if the streams of all ranks are part of one capture.
///
/// Where a GPU does not reach the memory of another, rows go through host memory instead, as in `staged_exchange`, and one
/// line on stderr says so; `pushes` tells it to programs.
template <row_exchange Ranks, stream_follower Current = thread_stream> class peer_exchange {
public:
  static constexpr bool capturable = true;

  /// Collective over the ranks, with the GPU of each current. `ranks` is any exchange of host memory between them.
  explicit peer_exchange(Ranks ranks, Current current = {}, exchange_options options = {})
      : ranks_(std::move(ranks)), current_(std::move(current)), options_(std::move(options)),
        size_(static_cast<std::size_t>(ranks_.ranks())), me_(static_cast<std::size_t>(ranks_.rank())),
        ones_(size_, 1), scratch_(size_) {
    // Each begins with another one, so that not all push to the same rank at once.
    for (std::size_t i = 1; i < size_; ++i) others_.push_back((me_ + i) % size_);
    auto const unreached = detail::reach_the_gpus_of(ranks_).unreached;
    if (unreached) {
      if (me_ == 0)
        std::fprintf(stderr, "stretto::cuda::peer_exchange: %s; rows go through host memory\n",
                     unreached->c_str());
      staged_.emplace(ranks_, current_, options_);
      return;
    }
    if (me_ == 0) room_ = std::make_shared<detail::push_room>(size_);
    room_ = detail::share(room_, ranks_)[0];
  }
  peer_exchange(peer_exchange const&) = delete;
  peer_exchange& operator=(peer_exchange const&) = delete;

  int rank() const { return ranks_.rank(); }
  int ranks() const { return ranks_.ranks(); }
  /// The exchange of host memory that this one stands on.
  Ranks& host() { return ranks_; }
  static constexpr bool rows_on_device() { return true; }
  /// False where rows go through host memory.
  bool pushes() const noexcept { return !staged_; }
  /// Whether `all_to_all_parts` may be called.
  bool moves_parts() const noexcept { return pushes(); }

  /// The counts lie in host memory.
  void exchange_counts(int const* send_rows, int* counts) { ranks_.exchange_counts(send_rows, counts); }

  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    if (staged_) return staged_->all_to_all(send, send_rows, receive, receive_rows, row_bytes);
    all_to_all_parts(send, send_rows, receive, receive_rows, row_bytes, 1, true);
  }

  /// `parts` blocks from every rank to every rank, for rank r `send_rows[r * parts + p]` rows as part p. What is sent lies by
  /// rank and within it by part; what comes lies by part and within it by rank if it is to be `sorted`, and the other way
  /// about if what is sent lies so.
  void all_to_all_parts(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                        std::size_t row_bytes, int parts, bool sorted) {
    if (staged_) throw std::logic_error("peer_exchange: parts of rows do not go through host memory");
    if (room_->is_broken) mend();
    try {
      stretto::detail::require_own_rows(send_rows, receive_rows, rank(), parts, whose);
      auto& calls = room_->calls[++calls_ % 2];
      auto& mine = calls[me_];
      mine.parts = static_cast<std::size_t>(parts);
      mine.blocks.place(send_rows, size_, mine.parts, !sorted, row_bytes, whose);
      mine.places.place(receive_rows, size_, mine.parts, sorted, row_bytes, whose);
      mine.receive = static_cast<std::byte*>(receive);
      issue(static_cast<std::byte const*>(send), calls);
    } catch (...) {
      room_->is_broken = true;
      own_.try_join(current_.current());
      throw;
    }
  }

private:
  static constexpr char const* whose = "peer_exchange";
  using calls_of_ranks = std::vector<detail::push_call>;

  void issue(std::byte const* out, calls_of_ranks& calls) {
    auto& mine = calls[me_];
    cudaStream_t const here = current_.current();
    mine.capture = detail::capture_of(here);
    mine.ready.record(here);
    for (std::size_t p = 0; p < mine.parts; ++p) {
      auto const own = me_ * mine.parts + p;
      own_.copy(mine.receive + mine.places.begins[own], out + mine.blocks.begins[own], mine.blocks.bytes[own],
                mine.ready);
    }
    room_->posted.set(me_, calls_);
    for (std::size_t const other : others_) {
      await(room_->posted, other);
      require_fit(mine, calls[other], other);
    }
    for (std::size_t const to : others_) {
      if (mine.to(to) == 0) continue;
      calls[to].ready.wait(here);
      push(out, mine, to, calls[to], here);
    }
    mine.done.record(here);
    room_->issued.set(me_, calls_);
    for (std::size_t const from : others_) {
      if (mine.from(from) == 0) continue;
      await(room_->issued, from);
      calls[from].done.wait(here);
    }
    own_.join(here);
  }

  void push(std::byte const* out, detail::push_call const& mine, std::size_t to,
            detail::push_call const& theirs, cudaStream_t on) const {
    for (std::size_t p = 0; p < mine.parts; ++p) {
      auto const from = to * mine.parts + p, at = me_ * mine.parts + p;
      if (mine.blocks.bytes[from] > 0)
        detail::copy_bytes(theirs.receive + theirs.places.begins[at], out + mine.blocks.begins[from],
                           mine.blocks.bytes[from], on);
    }
  }

  void require_fit(detail::push_call const& mine, detail::push_call const& theirs, std::size_t other) const {
    if (mine.capture != theirs.capture)
      throw std::logic_error("peer_exchange: rank " + std::to_string(me_) + " and rank " +
                             std::to_string(other) +
                             " are not in the same capture; capture the streams of all ranks together");
    if (mine.parts != theirs.parts)
      throw std::invalid_argument("peer_exchange: rank " + std::to_string(me_) + " exchanges " +
                                  std::to_string(mine.parts) + " parts and rank " + std::to_string(other) +
                                  " " + std::to_string(theirs.parts));
    for (std::size_t p = 0; p < mine.parts; ++p) {
      auto const of_mine = other * mine.parts + p, of_theirs = me_ * mine.parts + p;
      detail::require_same_bytes(whose, other, theirs.blocks.bytes[of_theirs], me_,
                                 mine.places.bytes[of_mine]);
      detail::require_same_bytes(whose, me_, mine.blocks.bytes[of_mine], other,
                                 theirs.places.bytes[of_theirs]);
    }
  }

  void await(detail::call_counts& counts, std::size_t rank) {
    if (counts.has_come(rank, calls_)) return;
    auto const begun = std::chrono::steady_clock::now();
    // Whoever failed in a call has a moment to say so itself: the first report is the one that counts.
    auto const over = [&] {
      if (options_.failed && options_.failed()) return true;
      auto const waited = std::chrono::steady_clock::now() - begun;
      return room_->is_broken && (!options_.failed || waited > std::chrono::milliseconds(200));
    };
    auto const found = [&] {
      detail::waiting_for_ranks const here_too(options_);
      return counts.wait(rank, calls_, options_.deadline, over);
    }();
    if (found == detail::outcome::came) return;
    std::string const call = "call " + std::to_string(calls_) + " of a peer_exchange";
    if (found == detail::outcome::given_up)
      throw std::runtime_error(call + " given up: another rank has failed");
    throw std::runtime_error(call + ": rank " + std::to_string(rank) + " did not come within " +
                             std::to_string(options_.deadline.count()) + " ms");
  }

  void wait_for_all() { ranks_.exchange_counts(ones_.data(), scratch_.data()); }

  /// Collective: a call was given up, and the streams of every rank have run dry since.
  void mend() {
    detail::waiting_for_ranks const here_too(options_);
    wait_for_all();
    calls_ = 0;
    room_->posted.set(me_, 0);
    room_->issued.set(me_, 0);
    if (me_ == 0) room_->is_broken = false;
    wait_for_all();
  }

  Ranks ranks_;
  Current current_;
  exchange_options const options_;
  std::size_t const size_, me_;
  std::vector<int> ones_, scratch_;
  std::shared_ptr<detail::push_room> room_;
  std::uint64_t calls_ = 0;
  std::vector<std::size_t> others_;
  std::optional<staged_exchange<Ranks, Current>> staged_;
  // Last, so that nothing is copied any more when the rest goes.
  detail::own_rows own_;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
