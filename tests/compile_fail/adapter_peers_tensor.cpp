// expect: stretto: a peer adapter needs a type 'tensor', that of the tensor adapter beside it
// expect: us::my_peers
// expect: \A(?!(?:[\s\S]*\berror: ){2})
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct my_peers {
#ifdef STRETTO_COMPILE_FAIL
  struct tensor {};
#else
  using tensor = stretto::null_tensors::tensor;
#endif
  void send(stretto::message const&, tensor const&) const {}
  tensor receive(stretto::message const&) const { return {}; }
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
