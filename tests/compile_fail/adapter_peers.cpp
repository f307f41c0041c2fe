// expect: stretto: a peer adapter needs a member 'tensor receive\(message const&\)'
// expect: us::my_peers
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct my_peers {
  using tensor = stretto::null_tensors::tensor;
  void send(stretto::message const&, tensor const&) const {}
#ifndef STRETTO_COMPILE_FAIL
  tensor receive(stretto::message const&) const { return {}; }
#endif
};
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  stretto::null_tensors tensors;
  stretto::null_lanes lanes;
  us::my_peers peers;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes, peers}, layers, stretto::sizes{});
  run();
}
