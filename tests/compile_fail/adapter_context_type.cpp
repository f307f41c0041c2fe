// expect: stretto: a tensor adapter needs a type 'context'
// expect: us::my_tensors
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct handle {};
struct my_tensors {
  using tensor = handle;
#ifndef STRETTO_COMPILE_FAIL
  struct context {};
#endif
  handle detach(handle const&) const { return {}; }
  void add(handle&, handle const&) const {}
  void release(handle&) const {}
};
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  us::my_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
