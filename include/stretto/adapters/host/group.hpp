#pragma once

#include <stretto/adapters/host/communicator.hpp>
#include <stretto/detail/waiting_time.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace host {

/// How the ranks of a group wait for each other.
struct group_options {
  /// How long a collective call or a receive waits for a rank that does not come, counted from when an op or a call of the
  /// group last ended.
  std::chrono::milliseconds deadline{30000};
  link_model link{};
  /// How long a rank looks for the others in a call before it sleeps: worth it where every thread has a core to itself.
  std::chrono::microseconds look{0};
};

/// Ranks that are threads of this process. They fail together: an op that throws on one rank ends the step on all, with
/// one error. Make it, add the domains that are needed, then start the ranks (`run`, or threads of one's own).
class group {
public:
  explicit group(int ranks, group_options const& options = {})
      : deadline_(stretto::detail::waiting_time(options.deadline)),
        look_(stretto::detail::waiting_time(options.look)), link_(options.link), ranks_(ranks),
        board_([](void* self) { static_cast<group*>(self)->wake(); }, this) {
    if (ranks < 1)
      throw std::invalid_argument("stretto::host::group needs at least one rank, got " +
                                  std::to_string(ranks));
    add_domain();
  }
  group(group const&) = delete;
  group& operator=(group const&) = delete;

  int ranks() const noexcept { return ranks_; }
  /// For `lane_options::board` of every rank.
  failure_board& board() noexcept { return board_; }
  clock::duration deadline() const noexcept { return deadline_; }

  /// Another order of collective calls, for another lane or for some of the ranks, named in ascending order. Returns
  /// its number; number 0 is there from the start and has all ranks. Only before the ranks start.
  int add_domain(std::vector<int> members) {
    require_no_ranks();
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i] < 0 || members[i] >= ranks_ || (i > 0 && members[i] <= members[i - 1]))
        throw std::invalid_argument(
            "stretto::host::group: the members of a domain must be ranks of the group in ascending order");
    if (members.empty())
      throw std::invalid_argument("stretto::host::group: a domain needs at least one member");
    domains_.push_back(std::make_unique<domain>(std::move(members), board_, deadline_, link_, look_));
    add(*domains_.back());
    return static_cast<int>(domains_.size()) - 1;
  }
  int add_domain() {
    std::vector<int> all;
    for (int rank = 0; rank < ranks_; ++rank) all.push_back(rank);
    return add_domain(std::move(all));
  }

  /// `also` is woken when the group fails and forgets when it is reset, until it is removed. Both only while no rank runs.
  void add(participant& also) {
    require_no_ranks();
    participants_.push_back(&also);
  }
  void remove(participant& gone) { std::erase(participants_, &gone); }

  /// The end of a domain that belongs to `rank` of the group.
  host::communicator communicator(int rank, int domain_number = 0) {
    domain& of = *domains_.at(static_cast<std::size_t>(domain_number));
    for (int member = 0; member < of.size(); ++member)
      if (of.members()[static_cast<std::size_t>(member)] == rank) return {of, member};
    throw std::invalid_argument("stretto::host::group: rank " + std::to_string(rank) +
                                " is no member of domain " + std::to_string(domain_number));
  }

  /// Ends the step on every rank: what is blocked in a collective call throws, what is issued later is skipped.
  void abort(std::string reason, int rank) { board_.report({rank, false, {}, std::move(reason), {}}); }
  bool failed() const noexcept { return board_.failed(); }

  /// Collective over all ranks of the group, after each has drained its lanes: forgets the failure, so that a new step
  /// can begin. Throws `communicator_error` if a rank does not come before the deadline.
  void reset() {
    std::unique_lock lock(mutex_);
    if (++resetting_ == ranks_) {
      resetting_ = 0;
      ++resets_;
      forget();
      all_reset_.notify_all();
      return;
    }
    std::uint64_t const mine = resets_;
    bool const ended =
        all_reset_.wait_until(lock, clock::now() + deadline_, [&] { return resets_ != mine || lost_ >= 0; });
    if (resets_ != mine) return;
    int const came = resetting_--;
    if (ended)
      throw communicator_error("reset given up: rank " + std::to_string(lost_) + " has ended by an exception",
                               lost_);
    throw communicator_error("reset given up: only " + std::to_string(came) + " of " +
                                 std::to_string(ranks_) + " ranks came in time",
                             -1);
  }

  /// Calls `body(rank)` on a thread for each rank and returns when all have ended. If one ends by an exception, the
  /// others are told, and a `step_error` that names the rank where it began is thrown here; the group is then as new.
  template <class Body> void run(Body const& body) {
    std::vector<std::thread> threads;
    threads.reserve(static_cast<std::size_t>(ranks_));
    running_ = true;
    for (int rank = 0; rank < ranks_; ++rank) {
      try {
        threads.emplace_back([this, &body, rank] { guarded(body, rank); });
      } catch (std::exception const& error) {
        abort(std::string("its thread could not be started: ") + error.what(), rank);
        break;
      }
    }
    for (std::thread& each : threads) each.join();
    running_ = false;
    if (!board_.failed()) return;
    failure const first = board_.first();
    lost_ = -1;
    forget();
    throw_step_error(first);
  }

private:
  void require_no_ranks() const {
    if (running_)
      throw std::logic_error(
          "stretto::host::group: a mailbox or domain is made while the ranks run; make one for "
          "all of them before group.run");
  }

  template <class Body> void guarded(Body const& body, int rank) {
    failure what{rank, false, {}, {}, {}};
    try {
      body(rank);
      return;
    } catch (std::exception const& error) {
      what.reason = error.what();
      what.original = std::current_exception();
    } catch (...) {
      what.reason = "it threw something that is no std::exception";
      what.original = std::current_exception();
    }
    board_.report(std::move(what));
    std::lock_guard const lock(mutex_);
    lost_ = rank;
    all_reset_.notify_all();
  }

  void wake() {
    for (participant* each : participants_) each->wake();
  }
  void forget() {
    for (participant* each : participants_) each->forget();
    board_.clear();
  }

  clock::duration const deadline_, look_;
  link_model const link_;
  int const ranks_;
  failure_board board_;
  std::vector<std::unique_ptr<domain>> domains_;
  std::vector<participant*> participants_;
  bool running_ = false;

  std::mutex mutex_;
  std::condition_variable all_reset_;
  int resetting_ = 0;
  /// A rank that will not come again.
  int lost_ = -1;
  std::uint64_t resets_ = 0;
};

} // namespace host
} // namespace v0
} // namespace stretto
