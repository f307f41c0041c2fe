#pragma once

#include <stretto/adapters/host/clock.hpp>
#include <stretto/adapters/host/failure.hpp>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

namespace stretto {
inline namespace v0 {
namespace host {

/// Gives up the lock for at most `look`, until `done()`, which is safe without it: to be woken takes longer than ranks are
/// apart that do the same.
template <class Done> void look_for(std::unique_lock<std::mutex>& lock, clock::duration look, Done done) {
  if (look <= clock::duration::zero()) return;
  lock.unlock();
  for (auto const end = clock::now() + look; !done() && clock::now() < end;) std::this_thread::yield();
  lock.lock();
}

/// Waits until `done()`, at most until the deadline has passed since an op or a call of the group ended: a rank may rightly
/// wait long for others that work, as the last stage of a long pipeline does for its first microbatch. Returns what `done()`
/// says then. In slices, since the clock runs on while a machine sleeps, when nobody can make progress.
template <class Done>
bool wait_patiently(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                    failure_board const& board, clock::duration deadline, Done done) {
  constexpr int slices = 8;
  std::uint64_t seen = board.progress();
  for (int left = slices; left > 0; --left) {
    if (changed.wait_until(lock, clock::now() + deadline / slices, done)) return true;
    if (std::uint64_t const now = board.progress(); now != seen) seen = now, left = slices + 1;
  }
  return done();
}

} // namespace host
} // namespace v0
} // namespace stretto
