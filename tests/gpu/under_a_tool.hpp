#pragma once

#include <cstdlib>

namespace test {

/// Whether the test runs under compute-sanitizer, which makes a launch ten times as long and more: sanitizer.py says so. Tests
/// then take each way to copy or to compute once, and leave out what is only another order or another number of the same.
inline bool under_a_tool() { return std::getenv("STRETTO_UNDER_A_TOOL") != nullptr; }

/// A deadline or a limit, longer there.
template <class Duration> Duration patiently(Duration wait) { return under_a_tool() ? 6 * wait : wait; }

/// How often something is repeated, less often there.
inline int times(int ordinary, int under) { return under_a_tool() ? under : ordinary; }

} // namespace test
