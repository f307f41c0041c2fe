#pragma once

#include <stretto/adapters/host/clock.hpp>
#include <stretto/adapters/host/failure.hpp>
#include <stretto/adapters/host/link_model.hpp>
#include <stretto/adapters/host/participant.hpp>
#include <stretto/adapters/host/patience.hpp>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace host {

/// A collective call, and its name in errors.
enum class operation : unsigned char {
  barrier,
  exchange_counts,
  all_to_all,
  all_gather,
  reduce_floats,
  reduce_doubles
};

constexpr char const* name_of(operation what) {
  constexpr char const* names[] = {"barrier",    "exchange_counts",      "all_to_all",
                                   "all_gather", "all_reduce of floats", "all_reduce of doubles"};
  return names[static_cast<int>(what)];
}

/// What one rank brings to a collective call. `bytes`: of one row in an all-to-all, else of its whole contribution.
struct contribution {
  operation what = operation::barrier;
  void const* data = nullptr;
  std::size_t bytes = 0;
  int const* send_rows = nullptr;
  int const* receive_rows = nullptr;
};

/// One order of collective calls among some ranks of a group, which all make the same calls in the same order. Each
/// rank of it is used by one thread at a time. A call ends when every rank has come, or with a `communicator_error` on
/// every rank when the group fails, the deadline passes or the calls do not fit together.
class domain final : public participant {
public:
  domain(std::vector<int> members, failure_board& board, clock::duration deadline, link_model const& link,
         clock::duration look = {})
      : members_(std::move(members)), board_(board), deadline_(deadline), look_(look), link_(link),
        seats_(members_.size()) {}
  domain(domain const&) = delete;
  domain& operator=(domain const&) = delete;

  /// What a rank has here.
  struct seat {
    contribution brought;
    bool present = false;
    double modelled_us = 0;
  };

  int size() const noexcept { return static_cast<int>(seats_.size()); }
  std::vector<int> const& members() const noexcept { return members_; }
  link_model const& link() const noexcept { return link_; }
  bool given_up() const noexcept { return board_.failed(); }
  seat& at(int member) noexcept { return seats_[static_cast<std::size_t>(member)]; }
  /// Of the call in progress: when the last rank came.
  clock::time_point start() const noexcept { return start_; }

  /// Returns when every rank has come: what they brought may be read until `rejoin`. Each rank that returns from here
  /// must call `rejoin` the same number of times, at least once and without throwing in between, since the others read
  /// its memory until then.
  void meet(int member, contribution const& mine) {
    std::unique_lock lock(mutex_);
    refuse_if_over(mine.what);
    seat& my = at(member);
    if (my.present)
      break_off("rank " + name(member) + " called " + name_of(mine.what) + " while its " +
                    name_of(my.brought.what) + " was still running; one communicator serves one lane",
                member);
    my.brought = mine;
    my.present = true;
    if (++arrived_ == size()) {
      check_calls();
      arrived_ = 0;
      ++calls_;
      start_ = clock::now();
      board_.note_progress();
      all_here_.notify_all();
      return;
    }
    std::uint64_t const call = calls_;
    look_for(lock, look_, [&] { return calls_ != call || board_.failed(); });
    bool const ended = wait_patiently(all_here_, lock, board_, deadline_,
                                      [&] { return calls_ != call || !broken_.empty() || board_.failed(); });
    if (calls_ != call) return;
    --arrived_;
    my.present = false;
    if (ended) refuse_if_over(mine.what);
    int const missing = first_absent(member);
    break_off("rank " + name(missing) + " did not come to " + describe_call(mine.what) + " within " +
                  seconds(deadline_),
              missing);
  }

  /// Returns when every rank of the call has called it. Never fails: between `meet` and here ranks only copy.
  void rejoin(bool last) noexcept {
    std::unique_lock lock(mutex_);
    if (++rejoined_ == size()) {
      if (last)
        for (seat& each : seats_) each.present = false;
      rejoined_ = 0;
      ++rejoins_;
      all_rejoined_.notify_all();
      return;
    }
    std::uint64_t const mine = rejoins_;
    look_for(lock, look_, [&] { return rejoins_ != mine; });
    all_rejoined_.wait(lock, [&] { return rejoins_ != mine; });
  }

  void wake() override {
    std::lock_guard const lock(mutex_);
    all_here_.notify_all();
  }

  void forget() override {
    std::lock_guard const lock(mutex_);
    for (seat& each : seats_) each.present = false;
    broken_.clear();
    arrived_ = 0;
    calls_ = 0;
  }

private:
  /// `all_to_all, call 17 of its communicator`
  std::string describe_call(operation what) const {
    return std::string(name_of(what)) + ", call " + std::to_string(calls_ + 1) + " of its communicator";
  }

  void refuse_if_over(operation what) const {
    if (board_.failed()) give_up(name_of(what), board_);
    if (!broken_.empty()) throw communicator_error(broken_, broken_by_);
  }

  /// Ends this call and all later ones on every rank: whoever came late must not read what others have left behind.
  [[noreturn]] void break_off(std::string sentence, int member) {
    broken_ = std::move(sentence);
    broken_by_ = members_[static_cast<std::size_t>(member)];
    all_here_.notify_all();
    throw communicator_error(broken_, broken_by_);
  }

  int first_absent(int otherwise) const noexcept {
    for (int member = 0; member < size(); ++member)
      if (member != otherwise && !seats_[static_cast<std::size_t>(member)].present) return member;
    return otherwise;
  }

  /// Cheap beside the rendezvous itself, so it is not left to debug builds: a wrong row count would be a wild read.
  void check_calls() {
    contribution const& first = at(0).brought;
    for (int member = 1; member < size(); ++member) {
      contribution const& other = at(member).brought;
      if (other.what != first.what)
        break_off("call " + std::to_string(calls_ + 1) + " of a communicator is " + name_of(first.what) +
                      " on rank " + name(0) + " but " + name_of(other.what) + " on rank " + name(member) +
                      "; every rank must make the same calls in the same order",
                  member);
      if (other.bytes != first.bytes)
        break_off(describe_call(first.what) + ": rank " + name(0) + " brings " + std::to_string(first.bytes) +
                      (first.what == operation::all_to_all ? " bytes a row" : " bytes") + ", rank " +
                      name(member) + " brings " + std::to_string(other.bytes),
                  member);
    }
    if (first.what != operation::all_to_all) return;
    for (int from = 0; from < size(); ++from)
      for (int to = 0; to < size(); ++to) {
        int const sent = at(from).brought.send_rows[to];
        int const expected = at(to).brought.receive_rows[from];
        if (sent < 0 || sent != expected)
          break_off(describe_call(first.what) + ": rank " + name(from) + " sends " + std::to_string(sent) +
                        " rows to rank " + name(to) + ", which expects " + std::to_string(expected),
                    from);
      }
  }
  std::string name(int member) const { return std::to_string(members_[static_cast<std::size_t>(member)]); }

  std::vector<int> const members_;
  failure_board& board_;
  clock::duration const deadline_, look_;
  link_model const link_;

  std::mutex mutex_;
  std::condition_variable all_here_;
  std::condition_variable all_rejoined_;
  std::vector<seat> seats_;
  int arrived_ = 0;
  int rejoined_ = 0;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> rejoins_{0};
  clock::time_point start_{};
  std::string broken_;
  int broken_by_ = 0;
};

} // namespace host
} // namespace v0
} // namespace stretto
