// expect: stretto\[E65\]: no phase of the model writes an objective, so backward has nothing to start from
// expect: us::Model
// expect: us::my_tensors
#define STRETTO_WITH_EXECUTOR
#include "layer.hpp"

namespace us {
#ifdef STRETTO_COMPILE_FAIL
struct loss : stretto::value {};
#else
struct loss : stretto::objective {};
#endif
struct Embedding : stretto::Phase<stretto::attn> {
  using writes = stretto::values<hidden>;
  void forward(auto&) {}
};
struct Head : stretto::Phase<stretto::mlp> {
  using reads = stretto::values<hidden>;
  using writes = stretto::values<loss>;
  void forward(auto&) {}
};
struct First : stretto::Block<Embedding> {};
struct Last : stretto::Block<Head> {};
struct Model : stretto::Blocks<First, Layer, Last> {};
struct Step : stretto::Schedule<Model, stretto::TwoStream1F1B> {};

/// Differentiates.
struct my_tensors : stretto::null_tensors {
  struct scope {};
  scope forward_scope(context&) const { return {}; }
  void forget_graph(tensor&) const {}
  void backward(context&, stretto::gradient_request<tensor> const&, auto&...) const {}
  void backward_input(context&, stretto::gradient_request<tensor> const&, auto&...) const {}
  void backward_weight(context&, auto&...) const {}
};
} // namespace us

void use(stretto::layer_list<us::Step::model>& layers) {
  us::my_tensors tensors;
  stretto::null_lanes lanes;
  stretto::executor run(us::Step{}, stretto::backend{tensors, lanes}, layers, stretto::sizes{});
  run();
}
