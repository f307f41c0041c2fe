#include "unit/agreement.hpp"

using namespace stretto;
using toy::hidden, toy::parameter;

namespace {

struct Square : Phase<mlp> {
  using reads = values<hidden>;
  using writes = values<hidden>;
  using saves = values<hidden>;
  static constexpr bool has_weights = false;
  void forward(auto& io) { io.out(hidden{}) = double(io.in(hidden{})) * double(io.in(hidden{})); }
  void backward(auto& io) {
    io.grad_in(hidden{}) = 2 * double(io.in(hidden{})) * double(io.grad_out(hidden{}));
  }
};
struct SquareLayer : Block<Square> {};
struct Model : Blocks<toy::EmbedLayer, SquareLayer, toy::HeadLayer> {};

template <class... Policies> double gradient_of_embedding() {
  parameter embedding{0.5, 0}, head{0.7, 0};
  std::vector<double> losses(3);
  layer_list<Model> layers;
  layers.add(layer<toy::EmbedLayer>(toy::Embed(&embedding)));
  layers.add(layer<SquareLayer>(Square()));
  layers.add(layer<toy::HeadLayer>(toy::Head(&head, losses.data())));
  toy::tensors<toy::number> numbers;
  null_lanes lanes;
  executor run(Schedule<Model, Policies...>{}, backend{numbers, lanes}, layers, sizes{.microbatches = 3});
  run();
  return embedding.gradient;
}

struct middle : value {};

/// Two phases, with a cut between them or in one node: the first saves nothing, the second what the first wrote.
struct Triple : Phase<attn> {
  using reads = values<hidden>;
  using writes = values<middle>;
  using saves = values<>;
  static constexpr bool has_weights = false;
  void forward(auto& io) { io[middle{}] = 3 * double(io[hidden{}]); }
  void backward(auto& io) { io.grad(hidden{}) = 3 * double(io.grad(middle{})); }
};
struct SquareMiddle : Phase<attn> {
  using reads = values<middle>;
  using writes = values<hidden>;
  using saves = values<middle>;
  static constexpr bool has_weights = false;
  void forward(auto& io) { io[hidden{}] = double(io[middle{}]) * double(io[middle{}]); }
  void backward(auto& io) { io.grad(middle{}) = 2 * double(io[middle{}]) * double(io.grad(hidden{})); }
};
struct OneNode : Block<Triple, SquareMiddle> {};
struct TwoNodes : Block<Triple, Detach, SquareMiddle> {};
template <class B> struct MiddleModel : Blocks<toy::EmbedLayer, B, toy::HeadLayer> {};

template <class B> double gradient_through() {
  parameter embedding{0.5, 0}, head{0.7, 0};
  std::vector<double> losses(3);
  layer_list<MiddleModel<B>> layers;
  layers.add(layer<toy::EmbedLayer>(toy::Embed(&embedding)));
  layers.add(layer<B>(Triple(), SquareMiddle()));
  layers.add(layer<toy::HeadLayer>(toy::Head(&head, losses.data())));
  toy::tensors<toy::number> numbers;
  null_lanes lanes;
  executor run(Schedule<MiddleModel<B>, Serial>{}, backend{numbers, lanes}, layers, sizes{.microbatches = 3});
  run();
  return embedding.gradient;
}

} // namespace

TEST_CASE("a value lives on for the phase that saves it, also inside of one node", "[saves]") {
  double const expected = gradient_through<TwoNodes>();
  CHECK(std::isfinite(expected));
  CHECK(gradient_through<OneNode>() == expected);
}

TEST_CASE("a phase finds in backward what it said it saves", "[saves][megatron-01][megatron-37]") {
  double expected = 0;
  // The head's loss is 0.7 h^4 with h = 0.5 x.
  for (int m = 0; m < 3; ++m) expected += 0.7 * 4 * std::pow(0.5, 3) * std::pow(toy::Embed::input(m), 4);
  CHECK(std::abs(gradient_of_embedding<Serial>() - expected) < 1e-12);
  CHECK(std::abs(gradient_of_embedding<TwoStream1F1B, SplitDW>() - expected) < 1e-12);
}
