// expect: stretto: a lane adapter needs a member 'run\(lane, op_label const&, task\)' for every callable
// expect: us::my_lanes
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct my_lanes {
  struct event {};
#ifdef STRETTO_COMPILE_FAIL
  void run(stretto::lane, stretto::op_label const&, void (*task)()) const { task(); }
#else
  void run(stretto::lane, stretto::op_label const&, auto task) const { task(); }
#endif
  void record(stretto::lane, event&) const {}
  void wait(stretto::lane, event&) const {}
  void drain() const {}
};
struct my_peers {
  using tensor = stretto::null_tensors::tensor;
  void send(stretto::message const&, tensor const&) const {}
  tensor receive(stretto::message const&) const { return {}; }
};
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  us::my_lanes lanes;
  us::my_peers peers;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes, peers}, layers, stretto::sizes{});
  run();
}
