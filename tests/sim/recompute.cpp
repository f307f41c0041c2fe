#include "sim/network.hpp"

#include <stretto/adapters/array.hpp>
#include <stretto/pipelines/all.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace stretto;
using sim_test::bits;
using toy::hidden, toy::residual, toy::parameter;

namespace {

struct inner : value {};
struct halved : value {};

/// Counts how often each forward runs.
struct tally {
  int up = 0, down = 0;
};

/// Two phases of one node. What stays inside of it, and what the first one keeps, is needed by backward.
struct Up : Phase<mlp> {
  using reads = values<hidden>;
  using writes = values<inner, residual>;
  using saved = double;
  parameter* w;
  tally* count;
  void forward(auto& io) {
    ++count->up;
    io.saved() = double(io[hidden{}]);
    io[inner{}] = std::sin(io.saved() * w->weight);
    io[residual{}] = 0.5 * io.saved();
  }
  void backward_input(auto& io) {
    double const slope = std::cos(io.saved() * w->weight);
    io.grad(hidden{}) = double(io.grad(inner{})) * slope * w->weight + 0.5 * double(io.grad(residual{}));
  }
  void backward_weight(auto& io) {
    w->gradient += double(io.grad(inner{})) * std::cos(io.saved() * w->weight) * io.saved();
  }
};
struct Down : Phase<mlp> {
  using reads = values<inner>;
  using writes = values<halved>;
  using saves = values<inner, halved>;
  parameter* w;
  tally* count;
  void forward(auto& io) {
    ++count->down;
    io[halved{}] = double(io[inner{}]) * double(io[inner{}]) * w->weight;
  }
  void backward_input(auto& io) {
    // Its own output once more, instead of the product.
    io.grad(inner{}) = 2 * double(io[halved{}]) / double(io[inner{}]) * double(io.grad(halved{}));
  }
  void backward_weight(auto& io) {
    double const x(io[inner{}]);
    w->gradient += x * x * double(io.grad(halved{}));
  }
};
struct Sum : Phase<mtp> {
  using reads = values<halved, residual>;
  using writes = values<hidden>;
  using saves = values<>;
  static constexpr bool has_weights = false;
  void forward(auto& io) { io[hidden{}] = double(io[halved{}]) + double(io[residual{}]); }
  void backward(auto& io) {
    io.grad(halved{}) = double(io.grad(hidden{}));
    io.grad(residual{}) = double(io.grad(hidden{}));
  }
};
struct EmbedLayer : Block<toy::Embed> {};
struct Kept : Block<Up, Down, Detach, Sum> {};
struct Again : Block<Recompute<Up, Down>, Detach, Recompute<Sum>> {};
struct HeadLayer : Block<Recompute<toy::Head>> {};
template <class Layer> struct Model : Blocks<EmbedLayer, Layer, HeadLayer> {};

/// Two layers, of one rank or of one each, between embedding and head.
template <class Layer> struct network : sim_test::network<Model<Layer>> {
  using base = sim_test::network<Model<Layer>>;
  using base::losses, base::parameters, base::ranks;
  tally count;

  network(int rank_count, int microbatches) : base(rank_count, microbatches) {
    ranks.front().add(layer<EmbedLayer>(toy::Embed(&parameters[0])));
    for (std::size_t l = 0; l < 2; ++l)
      (l == 0 ? ranks.front() : ranks.back())
          .add(layer<Layer>(Up{{}, &parameters[1 + 2 * l], &count}, Down{{}, &parameters[2 + 2 * l], &count},
                            Sum{}));
    ranks.back().add(layer<HeadLayer>(toy::Head(&parameters[5], losses.data())));
  }
};

template <class Layer, class... Policies> bits of_one_rank(int microbatches, tally* count = nullptr) {
  network<Layer> net(1, microbatches);
  auto const found = sim_test::in_order<Schedule<Model<Layer>, Policies...>>(net, microbatches);
  if (count != nullptr) *count = net.count;
  return found;
}

template <class Layer, class... Policies> std::string attacked(int ranks, int microbatches) {
  network<Layer> net(ranks, microbatches);
  return sim_test::attacked<Schedule<Model<Layer>, Policies...>>(net, microbatches,
                                                                 of_one_rank<Kept, Serial>(microbatches));
}

} // namespace

TEST_CASE("a node that runs forward again gives the same bits", "[recompute][megatron-26]") {
  bits const expected = of_one_rank<Kept, Serial>(4);
  tally kept, again;
  CHECK(of_one_rank<Kept, TwoStream1F1B, SplitDW>(4, &kept) == expected);
  CHECK(of_one_rank<Again, TwoStream1F1B, SplitDW>(4, &again) == expected);
  CHECK((kept.up == 8 && kept.down == 8));
  CHECK((again.up == 16 && again.down == 16));
  CHECK(of_one_rank<Again, Serial>(4) == expected);
  CHECK(of_one_rank<Again, TwoStream1F1B>(4) == expected);
  CHECK(of_one_rank<Again, Serial, ZeroBubbleH1>(4) == expected);
}

TEST_CASE("what runs forward again finds what it reads, in every order", "[recompute][sim]") {
  CHECK(attacked<Kept, TwoStream1F1B, SplitDW>(1, 3) == "");
  CHECK(attacked<Again, Serial>(1, 2) == "");
  CHECK(attacked<Again, TwoStream1F1B, SplitDW>(1, 3) == "");
  // Its input may have come from another rank.
  CHECK(attacked<Again, TwoStream1F1B, SplitDW>(2, 4) == "");
  CHECK(attacked<Again, Serial, ZeroBubbleH1>(2, 4) == "");
}

namespace {

struct wide : value {};
struct narrow : value {};

/// Makes a hundred numbers of one, and one of a hundred.
struct Widen : Phase<attn> {
  using reads = values<hidden>;
  using writes = values<wide>;
  using saves = values<>;
  static constexpr bool has_weights = false;
  array::tensors* make;
  void forward(auto& io) {
    io[wide{}] = make->zeros(100, 1);
    for (int i = 0; i < 100; ++i) io[wide{}][i][0] = io[hidden{}][0][0] * static_cast<float>(i);
  }
  void backward(auto& io) {
    io.grad(hidden{}) = make->zeros(1, 1);
    for (int i = 0; i < 100; ++i) io.grad(hidden{})[0][0] += io.grad(wide{})[i][0] * static_cast<float>(i);
  }
};
struct Narrow : Phase<attn> {
  using reads = values<wide>;
  using writes = values<hidden>;
  using saves = values<wide>;
  static constexpr bool has_weights = false;
  array::tensors* make;
  void forward(auto& io) {
    io[hidden{}] = make->zeros(1, 1);
    for (int i = 0; i < 100; ++i) io[hidden{}][0][0] += io[wide{}][i][0] * io[wide{}][i][0];
  }
  void backward(auto& io) {
    io.grad(wide{}) = make->zeros(100, 1);
    for (int i = 0; i < 100; ++i) io.grad(wide{})[i][0] = 2 * io[wide{}][i][0] * io.grad(hidden{})[0][0];
  }
};
struct One : Phase<attn> {
  using writes = values<hidden>;
  using saves = values<>;
  static constexpr bool has_weights = false;
  array::tensors* make;
  float* gradient;
  void forward(auto& io) { io[hidden{}] = make->of(1, 1, {1.0F + static_cast<float>(io.microbatch())}); }
  void backward(auto& io) { *gradient += io.grad(hidden{})[0][0]; }
};
struct Loss : Phase<mlp> {
  using reads = values<hidden>;
  using writes = values<toy::loss>;
  using saves = values<>;
  static constexpr bool has_weights = false;
  array::tensors* make;
  void forward(auto& io) { io[toy::loss{}] = make->zeros(1, 1); }
  void backward(auto& io) { io.grad(hidden{}) = make->of(1, 1, {1e-6F}); }
};
struct OneLayer : Block<One> {};
struct WideLayer : Block<Widen, Narrow> {};
struct WideLayerAgain : Block<Recompute<Widen, Narrow>> {};
struct LossLayer : Block<Loss> {};

struct cost {
  float gradient = 0;
  std::size_t peak = 0, left = 0;
};
/// All forwards first, which is when what they keep counts.
template <class B> cost cost_of(int microbatches) {
  struct Wide : Blocks<OneLayer, B, LossLayer> {};
  array::tensors arrays;
  null_lanes lanes;
  cost found;
  layer_list<Wide> layers;
  layers.add(layer<OneLayer>(One{{}, &arrays, &found.gradient}));
  layers.add(layer<B>(Widen{{}, &arrays}, Narrow{{}, &arrays}));
  layers.add(layer<LossLayer>(Loss{{}, &arrays}));
  executor run(Schedule<Wide, Serial, GPipe>{}, backend{arrays, lanes}, layers,
               sizes{.microbatches = microbatches});
  run();
  found.peak = arrays.memory().peak(), found.left = arrays.memory().live();
  return found;
}

} // namespace

TEST_CASE("a node that runs forward again holds its input, and less of everything else", "[recompute]") {
  cost const kept = cost_of<WideLayer>(8), again = cost_of<WideLayerAgain>(8);
  CHECK(kept.gradient != 0);
  CHECK(again.gradient == kept.gradient);
  // A hundred numbers for each of eight microbatches, or for the one that is in backward, and their gradients.
  CHECK(kept.peak >= 800 * sizeof(float));
  CHECK(again.peak <= 300 * sizeof(float));
  CHECK(again.left <= kept.left);
}

TEST_CASE("a Recompute is one node", "[recompute]") {
  auto const found = []<class B>(B) { return check_block(dataflow_of<B>::value, 0); };
  CHECK_FALSE(found(Again{}));
  CHECK(dataflow_of<Again>::value.recomputes[0]);
  CHECK_FALSE(found(Block<Up, Down, Detach, Recompute<Sum>>{}));
  CHECK(found(Block<Recompute<Up, Down, Detach, Sum>>{}).what == fault::recompute_spans_cut);
  CHECK(found(Block<Recompute<Up, Down, Detach, Sum>>{}).at == 1);
  CHECK(found(Block<Up, Recompute<Down>, Detach, Sum>{}).at == 1);
  CHECK(found(Block<Recompute<Up>, Down, Detach, Sum>{}).at == 1);
}
