#pragma once

#include <stretto/adapters/cuda/flags.hpp>
#include <stretto/adapters/cuda/ipc_memory.hpp>
#include <stretto/adapters/cuda/message_copies.hpp>
#include <stretto/adapters/cuda/process_room.hpp>
#include <stretto/adapters/cuda/reach.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {
namespace detail {

/// Where a copy of another process lies: in its place of the room, which is used again and again.
struct ipc_lent {
  std::uint32_t rank = 0, place = 0;
  std::uint32_t use = 0; ///< of the place: what its flags come to
  ipc_place memory{};
};

/// Copies between processes, whose streams wait for each other by flags.
template <class Tensor> class process_lender {
public:
  using lent = ipc_lent;

  template <row_exchange Ranks>
  process_lender(Ranks& ranks, exchange_options options) : me_(static_cast<std::uint32_t>(ranks.rank())) {
    require_reach(ranks, whose);
    // Behind the flags of the own copies one for each copy that others may have.
    auto const all = (flags + static_cast<std::size_t>(ranks.ranks())) * places;
    room_.emplace(ranks, all * sizeof(std::uint32_t), std::move(options), whose);
  }
  process_lender(process_lender const&) = delete;
  process_lender& operator=(process_lender const&) = delete;
  /// When what it fetches is there, and its copies have been fetched: those that nobody asks for until the deadline, or
  /// because the ranks have failed, are lost.
  ~process_lender() {
    auto const end = std::chrono::steady_clock::now() + room_->options().deadline;
    auto const all_fetched = [this] {
      for (std::uint32_t place = 0; place < own_.size(); ++place)
        if (!is_free(place)) return false;
      return true;
    };
    while (!all_fetched() && !room_->is_given_up() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    for (auto const& [stream, ended] : ended_) ended.try_synchronize();
  }

  void forget_fetched() {
    for (std::uint32_t place = 0; place < own_.size(); ++place) {
      if (load(flag(me_, place, sent)) == own_[place].uses) own_[place].source = Tensor{};
      if (is_free(place)) own_[place].copy = Tensor{};
    }
  }

  lent lend(int, Tensor copy, void* data, Tensor source, cudaStream_t here) {
    require_usable(here);
    std::uint32_t place = 0;
    while (place < own_.size() && !is_free(place)) ++place;
    if (place == places)
      throw std::runtime_error(std::string(whose) + ": " + std::to_string(places) +
                               " messages are on the way, and nobody fetches them");
    if (place == own_.size()) own_.emplace_back();
    auto& mine = own_[place];
    lent const made{me_, place, mine.uses + 1, exporter_.place_of(data)};
    mine.copy = std::move(copy);
    mine.source = std::move(source);
    mine.uses = made.use;
    ops_.write(room_->for_streams(flag(me_, place, sent)), made.use).issue(here);
    ended_[here].record(here);
    return made;
  }

  template <class Copy> void fetch(lent const& from, cudaStream_t here, Copy const& copy) {
    require_usable(here);
    auto const* const data = importer_.address_of(from.rank, from.memory);
    auto const [known, is_new] = watched_.try_emplace({from.rank, from.place}, 0);
    if (is_new) known->second = room_->watch(flag(from.rank, from.place, sent), from.rank);
    auto* const fetching = flag(me_, from.place, flags + from.rank);
    room_->expect(known->second, from.use, fetching);
    ops_.write(room_->for_streams(fetching), from.use)
        .wait_for_at_least(room_->for_streams(flag(from.rank, from.place, sent)), from.use)
        .issue(here);
    copy(data);
    ops_.write(room_->for_streams(flag(from.rank, from.place, fetched)), from.use).issue(here);
    ended_[here].record(here);
  }

private:
  enum kind : std::uint32_t { sent, fetched, flags };
  /// As many messages may be on the way from one rank.
  static constexpr std::uint32_t places = 4096;
  static constexpr char const* whose = "process_peers";

  struct own_copy {
    Tensor copy{}, source{};
    std::uint32_t uses = 0;
  };

  void require_usable(cudaStream_t here) const {
    if (is_capturing(here))
      throw std::logic_error("process_peers: a message between processes cannot be captured");
    room_->require_open(std::string("a message of ") + whose);
  }
  std::uint32_t* flag(std::uint32_t rank, std::uint32_t place, std::uint32_t which) const {
    return reinterpret_cast<std::uint32_t*>(room_->part(rank)) + which * places + place;
  }
  static std::uint32_t load(std::uint32_t* flag) { return std::atomic_ref(*flag).load(); }
  bool is_free(std::uint32_t place) const { return load(flag(me_, place, fetched)) == own_[place].uses; }

  std::uint32_t const me_;
  std::optional<process_room> room_;
  std::deque<own_copy> own_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> watched_;
  std::map<cudaStream_t, edge> ended_; ///< what each stream had to do for it
  ipc_exporter exporter_;
  ipc_importer importer_;
  flag_ops ops_;
};

} // namespace detail

/// What travels between the hosts: the tensor of the `Letters` of `process_peers`. Plain bytes.
using process_letter = basic_letter<detail::ipc_lent>;

/// `peers` between ranks that are processes of one host, each on a GPU of its own or several on one, over CUDA IPC: tensors lie
/// in memory of cudaMalloc. Streams wait for each other by flags in host memory; a failure, and a deadline in which nothing goes
/// on, let them go, which `exchange_options::report` is told. Every further message throws then. Messages cannot be captured.
///
/// When it goes it waits until all that it has sent has been fetched, at most until the deadline or until the ranks have failed.
template <message_tensors Tensors, peer_adapter Letters, stream_follower Current = thread_stream>
class process_peers
    : public detail::message_copies<Tensors, Letters, detail::process_lender<typename Tensors::tensor>,
                                    Current> {
public:
  /// Collective over `ranks`, any exchange of host memory between all of them. Throws `no_peer_access`, on every rank.
  template <row_exchange Ranks>
  process_peers(Ranks& ranks, Letters& letters, Tensors tensors = {}, Current current = {},
                exchange_options const& options = {})
      : process_peers::message_copies(letters, std::move(tensors), std::move(current), options.waits, ranks,
                                      options) {}
};

} // namespace cuda
} // namespace v0
} // namespace stretto
