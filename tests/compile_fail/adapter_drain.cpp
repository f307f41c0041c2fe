// expect: stretto: a lane adapter needs a member 'drain\(\)'
// expect: us::my_lanes
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct my_lanes {
  struct event {};
  void run(stretto::lane, stretto::op_label const&, auto task) const { task(); }
  void record(stretto::lane, event&) const {}
  void wait(stretto::lane, event&) const {}
#ifndef STRETTO_COMPILE_FAIL
  void drain() const {}
#endif
};
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  us::my_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
