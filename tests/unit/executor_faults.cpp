#include "unit/agreement.hpp"

#include <stretto/pipelines/all.hpp>

#include <catch2/matchers/catch_matchers_string.hpp>

using namespace stretto;
using Catch::Matchers::ContainsSubstring;
using toy::Model;

namespace {

using Split = Schedule<Model, TwoStream1F1B, SplitDW>;

struct silent_peers {
  using tensor = toy::number;
  void send(message const&, tensor const&) {}
  tensor receive(message const&) { return {}; }
};

/// A layer of a model in which nothing crosses from layer to layer.
struct Alone : Phase<mlp> {
  using reads = values<>;
  using writes = values<>;
  int* passes;
  explicit Alone(int& count) : passes(&count) {}
  void forward(auto&) { ++*passes; }
  void backward(auto&) { *passes += 100; }
};
struct AloneLayer : Block<Alone> {};

/// The sentence with which an executor refuses to be made; empty if it is made.
template <class S> std::string refusal(std::string const& picture, sizes const& wanted, bool linked = false) {
  toy::network<typename S::model> net(picture, wanted.microbatches > 0 ? wanted.microbatches : 1);
  toy::tensors<toy::number> numbers;
  null_lanes lanes;
  silent_peers peers;
  try {
    if (wanted.ranks > 1 && linked)
      executor run(S{}, backend{numbers, lanes, peers}, net.layers, wanted);
    else
      executor run(S{}, backend{numbers, lanes}, net.layers, wanted);
  } catch (std::invalid_argument const& refused) {
    return refused.what();
  }
  return {};
}
template <class S> std::string refusal(std::string const& picture, int microbatches) {
  return refusal<S>(picture, sizes{.microbatches = microbatches});
}

/// Plans with one fault each, over two microbatches or more.
enum class mistake {
  none,
  drops_forward,
  drops_backward,
  doubles_forward,
  doubles_backward,
  weights_swapped,
  input_first,
  far_chunk
};
template <mistake Made> struct Mistaken {
  static constexpr char const* name = "mistaken";
  static constexpr placement map = placement::looped;
  static constexpr int chunks = 1;
  static constexpr bool pairs = false, splits = true;
  static constexpr int min_microbatches(int) { return 2; }
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    if (Made == mistake::input_first) sink(call::backward_input(0, 0));
    for (int m = 0; m < microbatches; ++m)
      if (Made != mistake::drops_forward || m != 1) sink(call::forward(0, m));
    if (Made == mistake::doubles_forward) sink(call::forward(0, 0));
    if (Made == mistake::far_chunk) sink(call::forward(1, 0));
    for (int m = 0; m < microbatches; ++m)
      if (m != 0 || Made != mistake::input_first) sink(call::backward_input(0, m));
    if (Made == mistake::doubles_backward) sink(call::backward_input(0, 0));
    for (int m = 0; m < microbatches; ++m) {
      int const which = Made == mistake::weights_swapped && m < 2 ? 1 - m : m;
      if (Made != mistake::drops_backward || m != 1) sink(call::backward_weight(0, which));
    }
  }
};
template <mistake Made> std::string refusal_of_plan() {
  return refusal<Schedule<Model, TwoStream1F1B, Mistaken<Made>>>("EMH", 3);
}

/// Attention's weight gradient on the lane of communication, behind what the layer hands back.
template <bool Told> struct LateWeights {
  static constexpr void pair(pair_builder& p) {
    p.comm(p.b.backward(combine));
    p.compute(p.f.forward(attn), p.b.input(mlp), p.b.weight(mlp));
    p.comm(p.f.forward(dispatch), p.b.backward(dispatch));
    p.compute(p.f.forward(mlp));
    p.comm(p.f.forward(combine));
    p.compute(p.b.input(attn), p.f.forward(mtp), p.b.backward(mtp));
    if (Told)
      p.compute(p.b.weight(attn));
    else
      p.comm(p.b.weight(attn));
  }
};

} // namespace

TEST_CASE("a policy whose last pass of a slot is on another lane is told where to run it", "[executor]") {
  CHECK(refusal<Schedule<Model, LateWeights<true>, SplitDW>>("EMH", 4) == "");
  CHECK_THAT((refusal<Schedule<Model, LateWeights<false>, SplitDW>>("EMH", 4)),
             ContainsSubstring("stretto[E63]") && ContainsSubstring("F.attn (Embed") &&
                 ContainsSubstring("let the policy run that pass on the lane"));
}

TEST_CASE("a step after one that failed at once is right", "[executor]") {
  int const microbatches = 4;
  auto const expected = toy::serial_bits<Model>("EMDMH", microbatches);
  toy::network<Model> net("EMDMH", microbatches);
  toy::tensors<toy::number> numbers;
  null_lanes lanes;
  executor run(Split{}, backend{numbers, lanes}, net.layers, sizes{.microbatches = microbatches});
  // Negative numbers burn in the backward of that microbatch.
  for (int const fuse : {0, 2, 3, -2, -3, -5}) {
    CAPTURE(fuse);
    net.burns.microbatch = fuse;
    CHECK_THROWS_AS(run(), toy::blown);
    net.burns.microbatch = -1;
    net.clear();
    run();
    CHECK(net.bits() == expected);
  }
}

TEST_CASE("sizes that the pipeline cannot serve are refused in words", "[executor]") {
  CHECK(refusal<Split>("EMH", 1).empty());
  CHECK_THAT(refusal<Split>("EM|MH", 2),
             ContainsSubstring("stretto[E22]") && ContainsSubstring("(2 in the list, 1 in the pipeline)"));
  using Crossed = Schedule<Model, TwoStream1F1B, toy::CrossedChunks>;
  CHECK_THAT(refusal<Crossed>("EMMH", 2), ContainsSubstring("stretto[E22]"));
  CHECK(refusal<Crossed>("EM|MH", 2).empty());
  using Three = Schedule<Model, TwoStream1F1B, toy::ThreeChunks>;
  CHECK_THAT(refusal<Three>("EM|M|MH", 1),
             ContainsSubstring("three_chunks") && ContainsSubstring("1 given, at least 2 needed"));
  CHECK_THAT(refusal<Split>("EMH", 0), ContainsSubstring("at least 1 needed"));
  CHECK_THAT(refusal<Split>("EMH", sizes{.microbatches = 2, .chunks = 2}), ContainsSubstring("stretto[E43]"));
  CHECK_THAT(refusal<Split>("EMH", sizes{.microbatches = 2, .ranks = 0}), ContainsSubstring("stretto[E40]"));
  CHECK_THAT(refusal<Split>("EMH", sizes{.microbatches = 4, .ranks = 2, .rank = 2}),
             ContainsSubstring("stretto[E60]") && ContainsSubstring("the plan has no such rank (2)"));
  CHECK_THAT(refusal<Split>("EMH", sizes{.microbatches = 4, .ranks = 2, .rank = -1}),
             ContainsSubstring("stretto[E60]"));
}

TEST_CASE("a plan for several ranks wants an adapter for its messages", "[executor]") {
  using Step = Schedule<Model, TwoStream1F1B, OneFOneB>;
  for (int const rank : {0, 1})
    CHECK_THAT(refusal<Step>("EMH", {.microbatches = 2, .ranks = 2, .rank = rank}),
               ContainsSubstring("stretto[E61]") && ContainsSubstring("the backend has no peers"));
  CHECK(refusal<Step>("EMH", {.microbatches = 2}).empty());
}

TEST_CASE("plans that drop, double or misplace a call are refused in words", "[executor]") {
  CHECK(refusal_of_plan<mistake::none>().empty());
  CHECK_THAT(refusal_of_plan<mistake::drops_forward>(),
             ContainsSubstring("stretto[E46]") && ContainsSubstring("microbatch 1"));
  CHECK_THAT(refusal_of_plan<mistake::drops_backward>(),
             ContainsSubstring("stretto[E46]") && ContainsSubstring("W of stage 0"));
  CHECK_THAT(refusal_of_plan<mistake::doubles_forward>(), ContainsSubstring("stretto[E47]"));
  CHECK_THAT(refusal_of_plan<mistake::doubles_backward>(), ContainsSubstring("stretto[E47]"));
  CHECK_THAT(refusal_of_plan<mistake::weights_swapped>(), ContainsSubstring("stretto[E51]"));
  CHECK_THAT(refusal_of_plan<mistake::input_first>(), ContainsSubstring("stretto[E50]"));
  CHECK_THAT(refusal_of_plan<mistake::far_chunk>(), ContainsSubstring("stretto[E45]"));
}

TEST_CASE("lists of layers that do not fit together are refused in words", "[executor]") {
  // Nothing writes what the first layer reads.
  CHECK_THAT(refusal<Split>("MH", 2),
             ContainsSubstring("stretto[E66]") &&
                 ContainsSubstring(
                     "F.attn (Attention of MoeLayer) of layer 0, microbatch 0, on compute, at hidden; add a "
                     "layer before it that writes or carries the value"));
  // Nothing reads what the last layer writes, so no gradient comes back.
  CHECK_THAT(refusal<Split>("EM", 2),
             ContainsSubstring("stretto[E67]") &&
                 ContainsSubstring("B.combine (Combine of MoeLayer) of layer 1, microbatch 0, on comm, at "
                                   "the gradient of hidden; add a layer behind it that reads or carries"));
  // There is an embedding, but the head between hands nothing on.
  CHECK_THAT(refusal<Split>("EMHM", 2),
             ContainsSubstring("stretto[E66]") && ContainsSubstring("of layer 3, microbatch 0"));
}

TEST_CASE("stages that hand nothing to each other are refused in words", "[executor]") {
  using Step = Schedule<Model, TwoStream1F1B, OneFOneB>;
  auto const of_rank = [](int rank, std::string const& picture) {
    return refusal<Step>(picture, {.microbatches = 2, .ranks = 2, .rank = rank}, true);
  };
  CHECK(of_rank(0, "EM").empty());
  CHECK(of_rank(1, "MH").empty());
  // A head ends what the message of the first rank should take along.
  CHECK_THAT(
      of_rank(0, "EMH"),
      ContainsSubstring("stretto[E66]: a layer or message reads a value that no layer before it hands on: "
                        "the message of microbatch 0") &&
          ContainsSubstring("at hidden, on rank 0 of 2; add a layer before it"));
  // An embedding does not read what arrives, so no gradient goes back.
  CHECK_THAT(of_rank(1, "EMH"),
             ContainsSubstring("stretto[E67]: a layer or message needs the gradient of a value that no layer "
                               "behind it reads: the message of microbatch 0") &&
                 ContainsSubstring("at the gradient of hidden, on rank 1 of 2; add a layer behind it"));
}

TEST_CASE("ranks whose layers hand nothing on run each for itself", "[executor]") {
  using Step = Schedule<Blocks<AloneLayer>, TwoStream1F1B, OneFOneB>;
  // Of three ranks one has neighbours on both sides.
  for (int const ranks : {2, 3})
    for (int rank = 0; rank < ranks; ++rank)
      for (int const layers : {0, 2}) {
        int passes = 0;
        layer_list<Blocks<AloneLayer>> list;
        for (int l = 0; l < layers; ++l) list.add(layer<AloneLayer>(Alone(passes)));
        toy::tensors<toy::number> numbers;
        null_lanes lanes;
        silent_peers peers;
        executor run(Step{}, backend{numbers, lanes, peers}, list,
                     sizes{.microbatches = 3, .ranks = ranks, .rank = rank});
        run();
        CHECK(passes == 303 * layers);
        CHECK(run.table().ops.size() == std::size_t(6 * layers));
      }
}

TEST_CASE("a rank without layers runs", "[executor]") {
  toy::trained const nothing = toy::train<Split>("", 3);
  CHECK(nothing.table.ops.empty());
  CHECK(nothing.lanes.runs == 0);
}
