// expect: the harness sees this sentence
#include <stretto/version.hpp>

#ifdef STRETTO_COMPILE_FAIL
static_assert(sizeof(int) == 0, "the harness sees this sentence");
#endif
