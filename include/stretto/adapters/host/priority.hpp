#pragma once

#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace stretto {
inline namespace v0 {
namespace host {

/// Lowers the priority of the calling thread a little. Compute lanes do so, as compute streams rank below communication
/// streams on a GPU: where cores are fewer than lanes, a communication op that becomes ready would otherwise wait for a time
/// slice of compute, milliseconds that its peers wait too.
inline void give_way() noexcept {
#if defined(__linux__)
  // On Linux a thread has a priority of its own. It may be refused, and then nothing is lost but speed.
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), 10);
#endif
}

}  // namespace host
}  // namespace v0
}  // namespace stretto
