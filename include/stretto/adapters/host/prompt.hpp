#pragma once

#include <cstdint>

#ifdef __linux__
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace stretto {
inline namespace v0 {
namespace host {

/// Asks the kernel to wake the calling thread promptly. Threads that mostly sleep, as those of communication lanes do,
/// otherwise wait for the end of a time slice where compute lanes hold every core: on a network card nobody waits for a
/// core. The share of the processor stays the same, so that nothing can starve. From Linux 6.12 on a thread may choose its
/// slice (sched_setattr(2), `sched_runtime`); elsewhere nothing happens.
inline void wake_promptly() noexcept {
#if defined(__linux__) && defined(SYS_sched_setattr)
  struct {
    std::uint32_t size = 48, policy = SCHED_OTHER;
    std::uint64_t flags = 0;
    std::int32_t nice = 0;
    std::uint32_t priority = 0;
    std::uint64_t runtime = 100'000, deadline = 0, period = 0; // nanoseconds; 0.1 ms is the shortest slice
  } attributes;
  attributes.nice = getpriority(PRIO_PROCESS, 0);
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
#endif
}

} // namespace host
} // namespace v0
} // namespace stretto
