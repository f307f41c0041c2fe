#pragma once

#if !defined(__cplusplus) || __cplusplus < 202002L
#error "stretto needs C++20: compile with -std=c++20 or later"
#endif

// Without it g++ -O2 leaves a quarter of a long program's steps out of line.
#define STRETTO_ALWAYS_INLINE [[gnu::always_inline]] inline
// What makes sentences, or room, or runs once before the first step, is compiled for size, which takes the compiler less
// time.
#define STRETTO_COLD [[gnu::cold]]
