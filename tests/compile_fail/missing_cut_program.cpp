// expect: stretto\[E07\]: the policy runs two phases on different lanes, but no Detach cuts the block
// expect: us::Dispatch, us::Experts>
#define STRETTO_WITH_EXECUTOR
#include "missing_cut.cpp"

int waits() { return stretto::pair_program<us::Step>.waits(); }
