#pragma once

#include <stretto/detail/cxx20.hpp>

// Without it g++ -O2 leaves a quarter of a long program's steps out of line.
#define STRETTO_ALWAYS_INLINE [[gnu::always_inline]] inline
// What makes sentences, or room, or runs once before the first step, is compiled for size, which takes the compiler less time.
// g++ 12 compiles an executor in another tenth less if these functions are optimized less, and they run as fast.
#if defined(__OPTIMIZE__) && !defined(__OPTIMIZE_SIZE__) && !defined(__clang__) && !defined(__CUDACC__)
#define STRETTO_COLD [[gnu::cold, gnu::optimize("O1")]]
// Between the parameters of a lambda and what follows: it does not take after the function that it stands in.
#define STRETTO_COLD_LAMBDA __attribute__((cold, optimize("O1")))
#else
#define STRETTO_COLD [[gnu::cold]]
#define STRETTO_COLD_LAMBDA __attribute__((cold))
#endif
