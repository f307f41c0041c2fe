#include <stretto/adapters/null.hpp>
#include <stretto/adapters/torch.hpp>
#include <stretto/executor.hpp>
#include <stretto/pipelines/all.hpp>

#include <catch2/catch_test_macros.hpp>

#include <deque>

using namespace stretto;

namespace {

namespace sh = stretto::torch;

struct hidden : value {};
struct inner : value {};
struct loss : objective {};

at::Tensor numbers(std::int64_t rows, std::int64_t columns, double from) {
  return at::arange(0, rows * columns, at::kDouble).reshape({rows, columns}).mul(0.1).add(from).sin();
}

/// The tensors inside of the node, by microbatch, as they are first made.
struct watch {
  std::vector<c10::weak_intrusive_ptr<c10::TensorImpl>> made;
  int forwards = 0, alive_behind_all_forwards = 0;
};

struct Embed : Phase<attn> {
  using writes = values<hidden>;
  sh::parameter* w;
  void forward(auto& io) { io[hidden{}] = sh::linear(numbers(3, 4, io.microbatch()), *w); }
};
/// A weight gradient that may be put off, and one of an ordinary operation.
struct Up : Phase<mlp> {
  using reads = values<hidden>;
  using writes = values<inner>;
  sh::parameter* w;
  watch* seen;
  void forward(auto& io) {
    io[inner{}] = at::tanh(sh::linear(io[hidden{}], *w));
    if (static_cast<int>(seen->made.size()) == io.microbatch())
      seen->made.emplace_back(io[inner{}].getIntrusivePtr());
    ++seen->forwards;
  }
};
struct Down : Phase<mlp> {
  using reads = values<inner>;
  using writes = values<hidden>;
  sh::parameter* scale;
  void forward(auto& io) { io[hidden{}] = at::exp(io[inner{}] * scale->value()); }
};
struct Head : Phase<mlp> {
  using reads = values<hidden>;
  using writes = values<loss>;
  static constexpr bool has_weights = false;
  watch* seen;
  int microbatches;
  std::vector<double>* losses;
  void forward(auto& io) {
    io[loss{}] = io[hidden{}].pow(2).sum();
    losses->push_back(io[loss{}].template item<double>());
    if (io.microbatch() < microbatches - 1) return;
    for (auto const& one : seen->made) seen->alive_behind_all_forwards += !one.expired();
  }
};
struct EmbedLayer : Block<Embed> {};
struct Kept : Block<Up, Down> {};
struct Again : Block<Recompute<Up, Down>> {};
struct HeadLayer : Block<Head> {};
template <class Layer> struct Model : Blocks<EmbedLayer, Layer, HeadLayer> {};

struct results {
  std::vector<double> losses;
  std::vector<at::Tensor> gradients;
  watch seen;
};
template <class Layer, class... Policies> results step(int microbatches = 3) {
  results found;
  std::deque<sh::parameter> weights;
  weights.emplace_back("embedding", numbers(4, 5, 1));
  weights.emplace_back("up", numbers(5, 5, 2));
  weights.emplace_back("scale", numbers(1, 5, 3));
  layer_list<Model<Layer>> layers;
  layers.add(layer<EmbedLayer>(Embed{{}, &weights[0]}));
  layers.add(layer<Layer>(Up{{}, &weights[1], &found.seen}, Down{{}, &weights[2]}));
  layers.add(layer<HeadLayer>(Head{{}, &found.seen, microbatches, &found.losses}));
  sh::tensors tensors;
  null_lanes lanes;
  executor run(Schedule<Model<Layer>, Policies...>{}, backend{tensors, lanes}, layers,
               sizes{.microbatches = microbatches});
  run();
  for (sh::parameter& w : weights) found.gradients.push_back(w.main_grad().clone());
  return found;
}
void check_same(results const& a, results const& b) {
  CHECK(a.losses == b.losses);
  REQUIRE(a.gradients.size() == b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i) {
    CHECK(at::equal(a.gradients[i], b.gradients[i]));
    CHECK(a.gradients[i].abs().max().item<double>() > 0);
  }
}

} // namespace

TEST_CASE("a node of autograd that runs forward again gives the same bits and keeps no graph",
          "[torch][recompute][megatron-35]") {
  results const kept = step<Kept, Serial, GPipe>(), again = step<Again, Serial, GPipe>();
  check_same(again, kept);
  CHECK((kept.seen.forwards == 3 && again.seen.forwards == 6));
  CHECK(kept.seen.alive_behind_all_forwards == 3);
  CHECK(again.seen.alive_behind_all_forwards == 0);
  // W apart from I.
  check_same(step<Again, Serial, ZeroBubbleH1>(), kept);
  check_same(step<Kept, TwoStream1F1B, SplitDW>(), kept);
  check_same(step<Again, TwoStream1F1B, SplitDW>(), kept);
}
