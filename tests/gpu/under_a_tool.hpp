#pragma once

#include <cstdlib>
#include <string_view>

namespace test {

/// Whether the test runs under compute-sanitizer, which makes a launch ten times as long and more: sanitizer.py says so and names the tool. Tests
/// then take each way to copy or to compute once, and leave out what is only another order or another number of the same.
inline bool under_a_tool() { return std::getenv("STRETTO_UNDER_A_TOOL") != nullptr; }

inline bool under(std::string_view tool) {
  return under_a_tool() && std::getenv("STRETTO_UNDER_A_TOOL") == tool;
}

/// memcheck takes it for out of bounds where NCCL writes registered memory of another process, and ends the kernel.
inline bool under_memcheck() { return under("memcheck"); }

/// Under initcheck a call may come back only when what the stream had to do before is done: nothing is issued behind a stream
/// that waits for the thread that issues (tools_take.cu shows which calls).
inline bool under_initcheck() { return under("initcheck"); }

/// A deadline or a limit, longer there.
template <class Duration> Duration patiently(Duration wait) { return under_a_tool() ? 6 * wait : wait; }

/// How often something is repeated, less often there.
inline int times(int ordinary, int under) { return under_a_tool() ? under : ordinary; }

} // namespace test
