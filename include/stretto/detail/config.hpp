#pragma once

#include <stretto/detail/cxx20.hpp>

// Without it g++ -O2 leaves a quarter of a long program's steps out of line.
#define STRETTO_ALWAYS_INLINE [[gnu::always_inline]] inline
// What makes sentences, or room, or runs once before the first step, is compiled for size, which takes the compiler less
// time.
#define STRETTO_COLD [[gnu::cold]]
// Between the parameters of a lambda and what follows: it does not take after the function that it stands in.
#define STRETTO_COLD_LAMBDA __attribute__((cold))
