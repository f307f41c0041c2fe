#pragma once

#include <cstdio>
#include <cstdlib>

#include <dlfcn.h>

namespace test {

/// Calls what the program would have called without the module that stands before it; `arguments` have the types that it takes.
template <class Status, class... Arguments> Status behind(char const* name, Arguments... arguments) {
  void* const found = dlsym(RTLD_NEXT, name);
  if (found) return reinterpret_cast<Status (*)(Arguments...)>(found)(arguments...);
  std::fprintf(stderr, "no %s behind what tells initcheck\n", name);
  std::abort();
}

} // namespace test
