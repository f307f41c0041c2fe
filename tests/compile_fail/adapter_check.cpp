// expect: stretto: 'check_forward\(phase, values, count, run\)' of a tensor adapter must take every callable 'run'
// expect: us::my_tensors
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct my_tensors : stretto::null_tensors {
#ifdef STRETTO_COMPILE_FAIL
  void check_forward(auto, auto const*, int, void (*run)()) const { run(); }
#else
  void check_forward(auto, auto const*, int, auto run) const { run(); }
#endif
};
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  us::my_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
