// Bugs of other trainers as small programs of ours, on one thread: each tag is a row of docs/public_bugs.md.
#include "support/toy_rows.hpp"
#include "support/toy_train.hpp"

#include <stretto/pipelines/proof.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <tuple>

using namespace stretto;
using toy::hidden, toy::number, toy::parameter;

namespace {

/// One step of layers that `build` adds; what it returns is kept by the caller.
template <class S> void run_step(layer_list<typename S::model>& layers, int microbatches) {
  toy::tensors<number> numbers;
  null_lanes lanes;
  executor run(S{}, backend{numbers, lanes}, layers, sizes{.microbatches = microbatches});
  run();
}

/// Of a sum over microbatches by the weight of `p`.
template <class Loss> double slope(parameter& p, Loss&& loss) {
  double const weight = p.weight, step = 1e-5;
  p.weight = weight + step;
  double const above = loss();
  p.weight = weight - step;
  double const below = loss();
  p.weight = weight;
  return (above - below) / (2 * step);
}
bool is_close(double a, double b, double tolerance) {
  return std::abs(a - b) <= tolerance * (1 + std::abs(a));
}
double sum_of(std::vector<double> const& all) {
  double sum = 0;
  for (double const one : all) sum += one;
  return sum;
}

// --- What happens to a parameter from its first use to its last. -----------------------------------------------------

/// A weight that is whole only between its first forward and its last weight gradient, as sharded trainers keep it.
struct shard {
  parameter* of;
  double whole;
  int microbatches;
  int gathered = 0, reduced = 0, weight_passes = 0, passes_before_reduction = 0;
};
template <class P> struct sharded : P {
  shard* part;
  sharded(P phase, shard* s) : P(std::move(phase)), part(s) {}
  void forward(auto& io) {
    if (io.microbatch() == 0) ++part->gathered, part->of->weight = part->whole;
    P::forward(io);
  }
  void backward_weight(auto& io) {
    P::backward_weight(io);
    ++part->weight_passes;
    if (io.microbatch() + 1 < part->microbatches) return;
    ++part->reduced, part->passes_before_reduction = part->weight_passes;
    part->of->weight = std::numeric_limits<double>::quiet_NaN();
  }
};
struct ShardedLayer
    : Block<toy::Attention, Detach, toy::Dispatch, Detach, sharded<toy::Experts>, Detach, toy::Combine> {};
struct ShardedModel : Blocks<toy::EmbedLayer, ShardedLayer, toy::HeadLayer> {};
struct SmallModel : Blocks<toy::EmbedLayer, toy::MoeLayer, toy::HeadLayer> {};

/// Losses and gradients of one step; `Sharded` layers go through their hooks.
template <bool Sharded, class... Policies> std::vector<double> train(std::deque<shard>& shards) {
  int const microbatches = 4;
  using M = std::conditional_t<Sharded, ShardedModel, SmallModel>;
  parameter weights[8] = {{0.7, 0}, {0.9, 0}, {0.5, 0}, {0.8, 0}, {0.6, 0}, {0.4, 0}, {0.7, 0}, {0.6, 0}};
  std::vector<double> results(microbatches);
  layer_list<M> layers;
  layers.add(layer<toy::EmbedLayer>(toy::Embed(&weights[0])));
  for (int l = 0; l < 2; ++l) {
    toy::Attention const attention(&weights[3 * l + 1], &weights[3 * l + 2]);
    parameter& w = weights[3 * l + 3];
    if constexpr (Sharded) {
      shards.push_back({&w, std::exchange(w.weight, std::numeric_limits<double>::quiet_NaN()), microbatches});
      layers.add(layer<ShardedLayer>(attention, toy::Dispatch(),
                                     sharded<toy::Experts>(toy::Experts(&w), &shards.back()),
                                     toy::Combine()));
    } else {
      layers.add(layer<toy::MoeLayer>(attention, toy::Dispatch(), toy::Experts(&w), toy::Combine()));
    }
  }
  layers.add(layer<toy::HeadLayer>(toy::Head(&weights[7], results.data())));
  run_step<Schedule<M, Policies...>>(layers, microbatches);
  for (parameter const& p : weights) results.push_back(p.gradient);
  return results;
}

template <class... Policies> void hooks_fire_once() {
  std::deque<shard> shards;
  CHECK(train<true, Policies...>(shards) == train<false, Serial>(shards));
  for (shard const& one : shards) {
    CHECK(one.gathered == 1);
    CHECK(one.reduced == 1);
    CHECK(one.weight_passes == one.microbatches);
    CHECK(one.passes_before_reduction == one.microbatches);
  }
}

/// What would reduce a gradient before it is whole: the last microbatch comes first.
struct LastFirst {
  static constexpr char const* name = "last_first";
  static constexpr placement map = placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = false, splits = false;
  static constexpr int min_microbatches(int) { return 1; }
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) sink(call::forward(0, m));
    for (int m = microbatches; m-- > 0;) sink(call::backward(0, m));
  }
};

} // namespace

TEST_CASE("what hangs on a parameter happens once: before its first use, and when its gradient is whole",
          "[megatron-11][megatron-32][pipelines-15]") {
  hooks_fire_once<TwoStream1F1B, SplitDW>();
  hooks_fire_once<TwoStream1F1B, toy::LateWeights>();
  STATIC_CHECK(check_plan<LastFirst>(1, 2).what == fault::weight_order);
}

// --- Weights that several nodes share. -------------------------------------------------------------------------------

namespace {

/// Embedding and head use one weight, the experts of two layers another.
struct tied_network {
  explicit tied_network(int microbatches) : losses(static_cast<unsigned>(microbatches)) {
    layers.add(layer<toy::EmbedLayer>(toy::Embed(&ends)));
    for (int l = 0; l < 2; ++l)
      layers.add(layer<toy::MoeLayer>(toy::Attention{&own[l], &gate[l]}, toy::Dispatch(),
                                      toy::Experts(&experts), toy::Combine()));
    layers.add(layer<toy::HeadLayer>(toy::Head(&ends, losses.data())));
  }
  parameter ends{0.7, 0}, experts{0.8, 0}, own[2] = {{0.9, 0}, {0.6, 0}}, gate[2] = {{0.5, 0}, {0.4, 0}};
  std::vector<double> losses;
  layer_list<SmallModel> layers;
};

template <class... Policies> void tied_gradients_are_sums() {
  int const microbatches = 3;
  tied_network net(microbatches);
  run_step<Schedule<SmallModel, Policies...>>(net.layers, microbatches);
  double const ends = net.ends.gradient, experts = net.experts.gradient;
  auto const loss = [&] {
    run_step<Schedule<SmallModel, Serial>>(net.layers, microbatches);
    return sum_of(net.losses);
  };
  CHECK(is_close(slope(net.ends, loss), ends, 1e-6));
  CHECK(is_close(slope(net.experts, loss), experts, 1e-6));
  CHECK(std::abs(ends) > 0.1);
  CHECK(std::abs(experts) > 0.01);
}

} // namespace

TEST_CASE("a weight of several nodes gets the sum of their gradients, over all microbatches",
          "[megatron-13][pipelines-14]") {
  tied_gradients_are_sums<Serial>();
  tied_gradients_are_sums<TwoStream1F1B, SplitDW>();
}

// --- What a second forward path forgets. -----------------------------------------------------------------------------

namespace {

constexpr int rows_of_a_microbatch = 8;
bool is_padding(int microbatch, int row) { return row >= 3 + microbatch % 4; }

struct MaskedAttention : toy::Attention {
  using toy::Attention::Attention;
  MaskedAttention(toy::Attention base) : toy::Attention(base) {}
  void forward(auto& io) {
    toy::Attention::forward(io);
    int rows = 0;
    for (int row = 0; row < rows_of_a_microbatch; ++row) rows += !is_padding(io.microbatch(), row);
    io[toy::routing{}] = toy::ticket(rows);
  }
};
struct CountedDispatch : toy::Dispatch {
  std::vector<int>* routed;
  explicit CountedDispatch(std::vector<int>* counts) : routed(counts) {}
  void forward(auto& io) {
    (*routed)[static_cast<unsigned>(io.microbatch())] += io[toy::routing{}].rows();
    toy::Dispatch::forward(io);
  }
};
struct MaskedLayer
    : Block<MaskedAttention, Detach, CountedDispatch, Detach, toy::Experts, Detach, toy::Combine> {};
struct MaskedModel : Blocks<toy::EmbedLayer, MaskedLayer, toy::HeadLayer> {};

template <class... Policies> std::vector<int> routed_rows(int microbatches) {
  parameter weights[5] = {{0.7, 0}, {0.8, 0}, {0.9, 0}, {0.6, 0}, {0.5, 0}};
  std::vector<double> losses(static_cast<unsigned>(microbatches));
  std::vector<int> routed(static_cast<unsigned>(microbatches));
  layer_list<MaskedModel> layers;
  layers.add(layer<toy::EmbedLayer>(toy::Embed(&weights[0])));
  layers.add(layer<MaskedLayer>(MaskedAttention(toy::Attention{&weights[1], &weights[2]}),
                                CountedDispatch(&routed), toy::Experts(&weights[3]), toy::Combine()));
  layers.add(layer<toy::HeadLayer>(toy::Head(&weights[4], losses.data())));
  run_step<Schedule<MaskedModel, Policies...>>(layers, microbatches);
  return routed;
}

} // namespace

TEST_CASE("the overlapped path masks what the serial one masks: both run the same phases", "[megatron-19]") {
  std::vector<int> const unpadded = {3, 4, 5, 6, 3};
  CHECK(routed_rows<Serial>(5) == unpadded);
  CHECK(routed_rows<TwoStream1F1B, SplitDW>(5) == unpadded);
}

// --- A first stage with more than one input. -------------------------------------------------------------------------

namespace {

struct vision : value {};

/// Text and images, each with an encoder of its own.
struct Encoders : Phase<attn> {
  using writes = values<hidden, vision>;
  parameter *text, *images;
  Encoders(parameter* t, parameter* i) : text(t), images(i) {}
  static double picture(int microbatch) { return 0.9 - 0.2 * microbatch; }
  void forward(auto& io) {
    io[hidden{}] = text->weight * toy::Embed::input(io.microbatch());
    io[vision{}] = images->weight * picture(io.microbatch());
  }
  void backward_input(auto&) {}
  void backward_weight(auto& io) {
    text->gradient += double(io.grad(hidden{})) * toy::Embed::input(io.microbatch());
    images->gradient += double(io.grad(vision{})) * picture(io.microbatch());
  }
};
struct Merge : Phase<mlp> {
  using reads = values<hidden, vision>;
  using writes = values<hidden>;
  static constexpr bool has_weights = false;
  void forward(auto& io) { io.out(hidden{}) = double(io.in(hidden{})) + std::sin(double(io[vision{}])); }
  void backward(auto& io) {
    io.grad_in(hidden{}) = double(io.grad_out(hidden{}));
    io.grad(vision{}) = double(io.grad_out(hidden{})) * std::cos(double(io[vision{}]));
  }
};
struct EncodersLayer : Block<Encoders> {};
struct MergeLayer : Block<Merge> {};
struct VisionModel : Blocks<EncodersLayer, MergeLayer, toy::MoeLayer, toy::HeadLayer> {};

} // namespace

TEST_CASE("every input of a model with several reaches the loss, and its encoder gets a gradient",
          "[megatron-20]") {
  int const microbatches = 3;
  parameter weights[6] = {{0.7, 0}, {0.8, 0}, {0.9, 0}, {0.6, 0}, {0.5, 0}, {0.4, 0}};
  std::vector<double> losses(microbatches);
  layer_list<VisionModel> layers;
  layers.add(layer<EncodersLayer>(Encoders(&weights[0], &weights[1])));
  layers.add(layer<MergeLayer>(Merge()));
  layers.add(layer<toy::MoeLayer>(toy::Attention{&weights[2], &weights[3]}, toy::Dispatch(),
                                  toy::Experts(&weights[4]), toy::Combine()));
  layers.add(layer<toy::HeadLayer>(toy::Head(&weights[5], losses.data())));
  run_step<Schedule<VisionModel, TwoStream1F1B, SplitDW>>(layers, microbatches);
  double const images = weights[1].gradient;
  auto const loss = [&] {
    run_step<Schedule<VisionModel, TwoStream1F1B, SplitDW>>(layers, microbatches);
    return sum_of(losses);
  };
  CHECK(is_close(slope(weights[1], loss), images, 1e-6));
  CHECK(std::abs(images) > 0.1);
}

// --- Recompute and dropout. ------------------------------------------------------------------------------------------

namespace {

using place = std::tuple<int, int, int>; ///< layer, microbatch, number of the draw
using draws = std::function<double(place)>;

/// Two sublayers with dropout that keep their input only: backward runs them again.
struct Segment : Phase<mlp> {
  using reads = values<hidden>;
  using writes = values<hidden>;
  using saves = values<hidden>;
  parameter *first, *second;
  draws const* draw;
  Segment(parameter* a, parameter* b, draws const* d) : first(a), second(b), draw(d) {}

  struct inner {
    double x, t, keep_t, s, keep_s;
  };
  inner run(auto& io) const {
    double const x(io.in(hidden{}));
    inner i{x, std::tanh(x * first->weight), (*draw)({io.layer(), io.microbatch(), 0}), 0, 0};
    i.s = std::sin(i.t * i.keep_t * second->weight);
    i.keep_s = (*draw)({io.layer(), io.microbatch(), 1});
    return i;
  }
  void forward(auto& io) {
    inner const i = run(io);
    io.out(hidden{}) = i.x + i.s * i.keep_s;
  }
  void backward_input(auto& io) {
    inner const i = run(io);
    double const g(io.grad_out(hidden{})), kept = i.t * i.keep_t;
    double const to_kept = g * i.keep_s * std::cos(kept * second->weight) * second->weight;
    io.grad_in(hidden{}) = g + to_kept * i.keep_t * (1 - i.t * i.t) * first->weight;
  }
  void backward_weight(auto& io) {
    inner const i = run(io);
    double const g(io.grad_out(hidden{})), kept = i.t * i.keep_t;
    double const slope_of_s = g * i.keep_s * std::cos(kept * second->weight);
    second->gradient += slope_of_s * kept;
    first->gradient += slope_of_s * second->weight * i.keep_t * (1 - i.t * i.t) * i.x;
  }
};
struct SegmentLayer : Block<Segment> {};
struct SegmentModel : Blocks<toy::EmbedLayer, SegmentLayer, toy::MoeLayer, toy::HeadLayer> {};

/// Kept and scaled with probability 0.9, by where it is drawn.
double keyed(place const& at) {
  std::minstd_rand random(
      static_cast<unsigned>(1 + std::get<0>(at) * 1009 + std::get<1>(at) * 31 + std::get<2>(at)));
  random.discard(5);
  return random() % 10 == 0 ? 0.0 : 1 / 0.9;
}

struct dropped {
  std::vector<double> results; ///< losses, then gradients
  std::map<place, double> drawn;
};
template <class... Policies> dropped train_dropped(draws const& source, int microbatches, double nudge = 0) {
  dropped found;
  draws const noted = [&](place const& at) { return found.drawn[at] = source(at); };
  std::deque<parameter> weights;
  auto const next = [&weights] {
    weights.push_back({0.6 + 0.31 * std::sin(static_cast<double>(weights.size())), 0});
    return &weights.back();
  };
  std::vector<double> losses(static_cast<unsigned>(microbatches));
  layer_list<SegmentModel> layers;
  layers.add(layer<toy::EmbedLayer>(toy::Embed(next())));
  for (int l = 0; l < 2; ++l) {
    layers.add(layer<SegmentLayer>(Segment(next(), next(), &noted)));
    layers.add(layer<toy::MoeLayer>(toy::Attention{next(), next()}, toy::Dispatch(), toy::Experts(next()),
                                    toy::Combine()));
  }
  layers.add(layer<toy::HeadLayer>(toy::Head(next(), losses.data())));
  weights[1].weight += nudge;
  run_step<Schedule<SegmentModel, Policies...>>(layers, microbatches);
  found.results = losses;
  for (parameter const& p : weights) found.results.push_back(p.gradient);
  return found;
}

} // namespace

TEST_CASE("recomputed phases draw the dropout of their forward, in every schedule",
          "[megatron-26][megatron-27]") {
  int const microbatches = 5;
  dropped const serial = train_dropped<Serial>(keyed, microbatches);
  dropped const two = train_dropped<TwoStream1F1B, SplitDW>(keyed, microbatches);
  CHECK(two.results == serial.results);
  CHECK(two.drawn == serial.drawn);
  int zeros = 0;
  for (auto const& [at, drawn] : serial.drawn) zeros += drawn == 0;
  CHECK(zeros > 0);

  auto const loss = [&](double nudge) {
    dropped const with = train_dropped<Serial>(keyed, microbatches, nudge);
    return sum_of({with.results.begin(), with.results.begin() + microbatches});
  };
  double const step = 1e-5;
  CHECK(is_close((loss(step) - loss(-step)) / (2 * step), serial.results[microbatches + 1], 1e-6));

  // One generator for all: what a schedule draws depends on its order.
  std::minstd_rand in_common(7);
  draws const by_order = [&](place const&) { return in_common() % 10 == 0 ? 0.0 : 1 / 0.9; };
  auto const first = train_dropped<Serial>(by_order, microbatches).results;
  in_common.seed(7);
  CHECK(train_dropped<TwoStream1F1B, SplitDW>(by_order, microbatches).results != first);
}

// --- What a weight gradient needs, and what it waits for. ------------------------------------------------------------

TEST_CASE("a gradient that is given back before the weight gradient that uses it is refused",
          "[pipelines-16]") {
  toy::network<SmallModel> net("EMMH", 4);
  toy::tensors<number> numbers;
  null_lanes lanes;
  flat_table table = executor(Schedule<SmallModel, TwoStream1F1B, SplitDW>{}, backend{numbers, lanes},
                              net.layers, sizes{.microbatches = 4})
                         .table();
  REQUIRE_FALSE(table.check());
  int spoilt = 0;
  for (op& eager : table.ops) {
    if (eager.what != pass::backward_input) continue;
    op const& late = *std::find_if(table.ops.begin(), table.ops.end(), [&](op const& o) {
      return o.what == pass::backward_weight && o.layer == eager.layer && o.node == eager.node &&
             o.microbatch == eager.microbatch;
    });
    // The gradients of what the node wrote.
    cell_set needed = 0;
    for (int leaf = 0; leaf < 22; ++leaf) needed |= late.touches.reads & cells::leaf_gradient(leaf);
    if (needed == 0) continue;
    cell_access const kept = eager.touches;
    eager.touches.clears |= needed;
    diagnosis const d = table.check();
    CHECK((d.what == fault::read_after_release || d.what == fault::weight_before_input));
    CHECK(&table.ops[static_cast<unsigned>(d.at)] == &late);
    eager.touches = kept;
    ++spoilt;
  }
  CHECK(spoilt == 2 * 2 * 4);
}

TEST_CASE("the weight gradient of experts with a shared one is ready right after their input gradient",
          "[pipelines-25]") {
  constexpr auto const& pair =
      body_of<Schedule<toy::SharedLayer, TwoStream1F1B, SplitDW>, form::forward_backward, 0, 0>::value;
  auto const row = [](char const* name) {
    return toy::find_row<Blocks<toy::SharedLayer>>(name, pair.ops, pair.size);
  };
  int const weight = row("W.mlp"), input = row("I.mlp");
  REQUIRE(weight > input);
  for (int const w : pair.ops[weight].wait) CHECK(w < 0);
  for (int i = input + 1; i < weight; ++i) CHECK(pair.ops[i].on != lane::compute);
  // Where the gradients of the shared and the routed experts meet.
  CHECK_FALSE(toy::runs_after(weight, row("I.attn"), pair.ops));
  CHECK_FALSE(toy::runs_after(weight, row("B.dispatch"), pair.ops));
}
