#include <stretto/adapters/host/prompt.hpp>

#include <catch2/catch_test_macros.hpp>

#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include <sched.h>
#include <sys/utsname.h>

namespace {

/// The time slice of the calling thread in nanoseconds, as the kernel tells it; 0 if it does not.
long slice() {
  std::ifstream facts("/proc/thread-self/sched");
  for (std::string line; std::getline(facts, line);)
    if (line.starts_with("se.slice")) return std::stol(line.substr(line.find(':') + 1));
  return 0;
}

/// From Linux 6.12 on.
bool threads_choose_slices() {
  utsname kernel{};
  int major = 0, minor = 0;
  char dot = 0;
  if (uname(&kernel) != 0) return false;
  std::istringstream(kernel.release) >> major >> dot >> minor;
  return major > 6 || (major == 6 && minor >= 12);
}

/// Policy and niceness of the calling thread: fields 41 and 19 of proc_pid_stat(5).
std::string standing() {
  std::ifstream facts("/proc/thread-self/stat");
  std::string line, field, found;
  std::getline(facts, line);
  std::istringstream fields(line.substr(line.rfind(')') + 2));
  for (int number = 3; fields >> field; ++number)
    if (number == 19 || number == 41) found += field + " ";
  return found;
}

} // namespace

TEST_CASE("a thread that wants to wake promptly gets a short slice; policy and niceness stay", "[prompt]") {
  for (int const policy : {SCHED_OTHER, SCHED_BATCH, SCHED_IDLE}) {
    CAPTURE(policy);
    std::thread([policy] {
      sched_param const none{};
      REQUIRE(sched_setscheduler(0, policy, &none) == 0);
      std::string const before = standing();
      long const usual = slice();
      stretto::host::wake_promptly();
      CHECK(standing() == before);
      // Kernels without debugging facts do not tell the slice.
      if (usual != 0) CHECK(slice() == (threads_choose_slices() && policy != SCHED_IDLE ? 100'000 : usual));
    }).join();
  }
}
