// expect: stretto: a tensor adapter that differentiates needs a member 'forget_graph\(tensor&\)'
// expect: us::my_tensors
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
struct my_tensors : stretto::null_tensors {
  struct scope {};
  scope forward_scope(context&) const { return {}; }
#ifndef STRETTO_COMPILE_FAIL
  void forget_graph(tensor&) const {}
#endif
  void backward(context&, stretto::gradient_request<tensor> const&, auto&...) const {}
  void backward_input(context&, stretto::gradient_request<tensor> const&, auto&...) const {}
  void backward_weight(context&, auto&...) const {}
};
struct Step : stretto::Schedule<Layer, stretto::TwoStream1F1B, stretto::SplitDW> {};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  us::my_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
