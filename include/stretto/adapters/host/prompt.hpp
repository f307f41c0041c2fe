#pragma once

#include <stretto/detail/cxx20.hpp>

#include <cstdint>

#ifdef __linux__
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace stretto {
inline namespace v0 {
namespace host {

/// Asks the kernel to wake the calling thread promptly. Threads that mostly sleep, as those of communication lanes do,
/// otherwise wait for the end of a time slice where compute lanes hold every core: on a network card nobody waits for a
/// core. Policy and niceness stay as they are, and with them the share of the processor: nothing can starve. From Linux 6.12
/// on a thread of the ordinary policies may choose its slice (sched_setattr(2), `sched_runtime`); elsewhere nothing happens.
inline void wake_promptly() noexcept {
#if defined(__linux__) && defined(SYS_sched_setattr)
  struct {
    std::uint32_t size = 0, policy = 0;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 0, deadline = 0, period = 0;
  } mine;
  if (syscall(SYS_sched_getattr, 0, &mine, sizeof(mine), 0) != 0) return;
  if (mine.policy != SCHED_OTHER && mine.policy != SCHED_BATCH) return;
  mine.size = sizeof(mine);
  mine.runtime = 100'000; // nanoseconds: the shortest slice
  (void)syscall(SYS_sched_setattr, 0, &mine, 0);
#endif
}

} // namespace host
} // namespace v0
} // namespace stretto
