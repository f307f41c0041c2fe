#pragma once

#include <stretto/adapters/host/group.hpp>
#include <stretto/adapters/host/patience.hpp>

#include <algorithm>
#include <concepts>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace host {

/// What is sent has storage of its own, since the sender's may go back right behind the send. `Tensor` is copied; where copies
/// share storage, as handles of torch do, it is cloned, for which it needs `defined`, `detach` and `clone`.
template <class Tensor> Tensor copy_to_send(Tensor const& t) {
  if constexpr (requires {
                  { t.defined() } -> std::convertible_to<bool>;
                  { t.detach().clone() } -> std::convertible_to<Tensor>;
                })
    return t.defined() ? Tensor(t.detach().clone()) : Tensor{};
  else
    return t;
}

/// Where the ranks of one group leave messages for one another. One for all ranks, made before they start; lives longer
/// than they run, and no longer than the group.
template <class Tensor> class mailbox final : public participant {
public:
  explicit mailbox(group& of)
      : group_(of), board_(of.board()), deadline_(of.deadline()),
        boxes_(static_cast<std::size_t>(of.ranks())) {
    for (box& each : boxes_) each.letters.reserve(64);
    of.add(*this);
  }
  ~mailbox() { group_.remove(*this); }
  mailbox(mailbox const&) = delete;
  mailbox& operator=(mailbox const&) = delete;

  int ranks() const noexcept { return static_cast<int>(boxes_.size()); }

  void put(int from, message const& about, Tensor const& content) {
    refuse_itself(from, about);
    if (board_.failed()) give_up(stretto::describe(label_of(about, lane::send_lower)), board_);
    box& to = boxes_.at(static_cast<std::size_t>(about.peer));
    Tensor copy = copy_to_send(content);
    {
      std::lock_guard const lock(to.mutex);
      to.letters.push_back({from, about, std::move(copy)});
    }
    board_.note_progress();
    to.arrived.notify_all();
  }

  /// The oldest message of that name. Blocks until it is there; throws `communicator_error` when the group fails or nothing
  /// in it has gone on until the deadline.
  Tensor take(int to, message const& about) {
    refuse_itself(to, about);
    box& mine = boxes_.at(static_cast<std::size_t>(to));
    std::unique_lock lock(mine.mutex);
    auto found = mine.letters.end();
    auto const has_come = [&] {
      found = std::find_if(mine.letters.begin(), mine.letters.end(), [&](letter const& each) {
        return each.from == about.peer && is_same(each.about, about);
      });
      return found != mine.letters.end();
    };
    bool const in_time =
        wait_patiently(mine.arrived, lock, board_, deadline_, [&] { return board_.failed() || has_come(); });
    if (board_.failed()) give_up(stretto::describe(label_of(about, lane::receive_lower)), board_);
    if (!in_time)
      throw communicator_error("rank " + std::to_string(about.peer) + " did not send within " +
                                   seconds(deadline_) + " what rank " + std::to_string(to) +
                                   " waits for: " + stretto::describe(label_of(about, lane::receive_lower)),
                               about.peer);
    Tensor content = std::move(found->content);
    mine.letters.erase(found);
    return content;
  }

  void wake() override {
    for (box& each : boxes_) {
      std::lock_guard const lock(each.mutex);
      each.arrived.notify_all();
    }
  }
  void forget() override {
    for (box& each : boxes_) {
      std::lock_guard const lock(each.mutex);
      each.letters.clear();
    }
  }

private:
  struct letter {
    int from;
    message about;
    Tensor content;
  };
  struct box {
    std::mutex mutex;
    std::condition_variable arrived;
    std::vector<letter> letters;
  };

  /// Stages of one rank hand values on without messages.
  static void refuse_itself(int rank, message const& about) {
    if (about.peer == rank)
      throw std::invalid_argument(
          "stretto::host::peers: rank " + std::to_string(rank) +
          " has a message for itself; make peers with the rank of its executor's sizes");
  }

  static bool is_same(message const& a, message const& b) noexcept {
    return a.gradient == b.gradient && a.stage == b.stage && a.microbatch == b.microbatch &&
           a.chain == b.chain;
  }

  group& group_;
  failure_board& board_;
  clock::duration const deadline_;
  std::vector<box> boxes_;
};

/// The messages of one rank of a group: a `peer_adapter`. A send never blocks.
template <class Tensor> class peers {
public:
  using tensor = Tensor;

  peers(mailbox<Tensor>& of, int rank) : mailbox_(of), rank_(rank) {
    if (rank < 0 || rank >= of.ranks())
      throw std::invalid_argument("stretto::host::peers: there is no rank " + std::to_string(rank) +
                                  "; the group has ranks 0 to " + std::to_string(of.ranks() - 1));
  }

  void send(message const& about, Tensor const& content) { mailbox_.put(rank_, about, content); }
  Tensor receive(message const& about) { return mailbox_.take(rank_, about); }

private:
  mailbox<Tensor>& mailbox_;
  int rank_;
};

static_assert(peer_adapter<peers<int>>);

} // namespace host
} // namespace v0
} // namespace stretto
