#pragma once

/// Every header but version.hpp reaches this one before any other: an older standard then gets one sentence, not what
/// follows from code that it cannot read.
#if !defined(__cplusplus) || __cplusplus < 202002L
#error "stretto needs C++20: compile with -std=c++20 or later"
// No such file: a missing one is what every compiler ends at.
#include <stretto/needs/-std=c++20>
#endif
