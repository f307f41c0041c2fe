// expect: stretto: a tensor adapter needs a member 'release\(tensor&\)'
// expect: us::my_tensors
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct my_tensors {
  using tensor = int;
  struct context {};
  int detach(int t) const { return t; }
  void add(int& sum, int term) const { sum += term; }
#ifndef STRETTO_COMPILE_FAIL
  void release(int&) const {}
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
