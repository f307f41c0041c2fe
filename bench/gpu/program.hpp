#pragma once

#include <stretto/adapters/cuda/ready.hpp>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <utility>

namespace bench {

/// What a program takes as NAME=NUMBER, with its defaults.
using settings = std::map<std::string, int>;

/// False if an argument names no setting, which has then been told.
inline bool read_arguments(settings& known, int count, char** arguments) {
  for (int i = 1; i < count; ++i) {
    auto const* equals = std::strchr(arguments[i], '=');
    auto const name =
        equals ? std::string(arguments[i], static_cast<std::size_t>(equals - arguments[i])) : std::string();
    if (known.count(name) == 0) {
      std::fprintf(stderr, "unknown argument %s; known:", arguments[i]);
      for (auto const& [each, value] : known) std::fprintf(stderr, " %s=%d", each.c_str(), value);
      std::fprintf(stderr, "\n");
      return false;
    }
    known[name] = std::atoi(equals + 1);
  }
  return true;
}

/// The members of a JSON object.
inline void print(settings const& all) {
  char const* comma = "";
  for (auto const& [name, value] : all)
    std::printf("%s\"%s\": %d", std::exchange(comma, ", "), name.c_str(), value);
}

/// The whole of `main`: `run()` with the settings of the command line, on a machine with a GPU.
template <class Run> int run_on_gpu(settings& known, int count, char** arguments, Run run) {
  try {
    if (!read_arguments(known, count, arguments)) return 2;
    if (auto const why = stretto::cuda::why_not_ready(stretto::cuda::look_at_machine()); !why.empty()) {
      std::printf("skipped: %s\n", why.c_str());
      return 77;
    }
    run();
    return 0;
  } catch (std::exception const& problem) {
    std::fprintf(stderr, "%s\n", problem.what());
    return 1;
  }
}

} // namespace bench
