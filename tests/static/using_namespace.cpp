// A program that says `using namespace stretto` may still use what POSIX and the C library declare.
#include <math.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <stretto/adapters/null.hpp>
#include <stretto/stretto.hpp>

using namespace stretto;

[[maybe_unused]] static double never_called() {
  sync();
  int const made = access("/", 0) + link("one", "other") + dup(0) + pause() + static_cast<int>(time(nullptr));
  return made + fmin(1, 2) + gamma(3) + y0(4) + (signal(0, nullptr) == nullptr);
}
