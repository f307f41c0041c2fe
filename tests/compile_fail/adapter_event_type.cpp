// expect: stretto: a lane adapter needs a type 'event'
// expect: us::my_lanes
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct moment {};
struct my_lanes {
#ifndef STRETTO_COMPILE_FAIL
  using event = moment;
#endif
  void run(stretto::lane, stretto::op_label const&, auto const& task) const { task(); }
  void record(stretto::lane, moment&) const {}
  void wait(stretto::lane, moment&) const {}
  void drain() const {}
};
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  us::my_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
