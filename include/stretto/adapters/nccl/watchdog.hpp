#pragma once

#include <stretto/adapters/nccl/session.hpp>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// Ends what a rank has given to NCCL when it does not end by itself: when the deadline of a call has passed, when NCCL
/// reports an error, and when the ranks have failed otherwise. Then all communicators of the rank are given up, and the first
/// two are told to `Board`, the failure board of the ranks (`host::failure_board`, or one with its `failed` and `report`).
///
/// Its thread sleeps; unless something is late or wrong it makes no call of CUDA, so that captures of other threads
/// go on undisturbed.
template <class Board> class watchdog {
public:
  /// `of` and `board` outlive it. Errors name `rank`.
  watchdog(session& of, Board& board, int rank)
      : session_(of), board_(board), rank_(rank), thread_([this] { watch(); }) {}
  watchdog(watchdog const&) = delete;
  watchdog& operator=(watchdog const&) = delete;
  ~watchdog() {
    {
      std::lock_guard const lock(mutex_);
      ends_ = true;
    }
    ended_.notify_one();
    thread_.join();
  }

private:
  void watch() {
    auto const nap =
        std::clamp<std::chrono::milliseconds>(session_.entrance().calls.deadline() / 50,
                                              std::chrono::milliseconds(5), std::chrono::milliseconds(100));
    // Else a look at an event would spoil what another thread captures.
    auto mode = cudaStreamCaptureModeRelaxed;
    static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode));
    static_cast<void>(cudaSetDevice(session_.device()));
    std::unique_lock lock(mutex_);
    while (!ended_.wait_for(lock, nap, [this] { return ends_; })) {
      lock.unlock();
      if (is_wrong()) return;
      lock.lock();
    }
  }

  bool is_wrong() {
    auto& calls = session_.entrance().calls;
    if (!session_.entrance().is_open()) return true;
    if (board_.failed()) {
      session_.abort("the ranks have given up");
      return true;
    }
    if (auto const noticed = session_.noticed(); noticed != ncclSuccess) {
      end(calls.oldest(), reason_of(noticed));
      return true;
    }
    if (auto const late = calls.overdue()) {
      end(late,
          "it did not end within " + std::to_string(late->allowed.count() / 1000) + " s: a rank is silent");
      return true;
    }
    return false;
  }

  template <class Call> void end(Call const& call, std::string const& reason) {
    std::string const what =
        "NCCL" + (call ? std::string(" in ") + call->what : std::string()) + ": " + reason;
    auto const where = call ? call->where : stretto::detail::op_place{};
    // First of all, so that who learns of it from the board is not let in again.
    session_.entrance().close(what);
    board_.report({rank_,
                   where.is_known(),
                   {static_cast<phase_kind>(where.phase), static_cast<pass>(where.what),
                    static_cast<lane>(where.on), where.layer, where.microbatch},
                   what,
                   {}});
    session_.abort(what);
  }

  session& session_;
  Board& board_;
  int const rank_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false;
  std::thread thread_;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
