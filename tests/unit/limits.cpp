#include <stretto/adapters/null.hpp>
#include <stretto/executor.hpp>
#include <stretto/pipelines/all.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace stretto;
using Catch::Matchers::ContainsSubstring;

namespace {

struct hidden : value {};
struct tokens : value {};
struct mixed : value {};
struct loss : objective {};

template <phase_kind Kind, class Reads, class Writes> struct ByHand : Phase<Kind> {
  using reads = Reads;
  using writes = Writes;
  void forward(auto&) {}
  void backward_input(auto&) {}
  void backward_weight(auto&) {}
};
struct Embed : ByHand<attn, values<>, values<hidden>> {};
struct Route : ByHand<attn, values<hidden>, values<tokens>> {};
template <int Limit> struct Exchange : ByHand<dispatch, values<tokens>, values<mixed>> {
  static constexpr int in_flight = Limit;
};
struct Gather : ByHand<combine, values<mixed>, values<hidden>> {};
struct Loss : ByHand<mlp, values<hidden>, values<loss>> {};

struct EmbedLayer : Block<Embed> {};
template <int Limit> struct ExpertLayer : Block<Route, Detach, Exchange<Limit>, Detach, Gather> {};
struct LossLayer : Block<Loss> {};
template <int Limit> struct Model : Blocks<EmbedLayer, ExpertLayer<Limit>, LossLayer> {};

/// The sentence with which an executor over so many layers of experts refuses to be made; empty if it is made and runs.
template <int Limit, class Policy, class Pipeline> std::string refusal(int layers, int microbatches) {
  using Step = Schedule<Model<Limit>, Policy, Pipeline>;
  layer_list<Model<Limit>> list;
  list.add(layer<EmbedLayer>(Embed{}));
  for (int l = 0; l < layers; ++l) list.add(layer<ExpertLayer<Limit>>(Route{}, Exchange<Limit>{}, Gather{}));
  list.add(layer<LossLayer>(Loss{}));
  null_tensors tensors;
  null_lanes lanes;
  try {
    executor run(Step{}, backend{tensors, lanes}, list, sizes{.microbatches = microbatches});
    run();
  } catch (std::invalid_argument const& refused) {
    return refused.what();
  }
  return {};
}

} // namespace

TEST_CASE("layers and plans that need more in flight than a phase allows are refused", "[limits]") {
  CHECK(refusal<1, Serial, SerialPipeline>(1, 4).empty());
  CHECK_THAT((refusal<1, Serial, SerialPipeline>(2, 4)),
             ContainsSubstring("stretto[E37]") && ContainsSubstring("F.dispatch (Exchange of ExpertLayer)") &&
                 ContainsSubstring("layer 2, microbatch 0"));
  // Every forward first: one handle a microbatch.
  CHECK_THAT((refusal<1, Serial, GPipe>(1, 2)), ContainsSubstring("stretto[E37]"));
  CHECK(refusal<3, Serial, GPipe>(1, 3).empty());
  CHECK_THAT((refusal<3, Serial, GPipe>(1, 4)), ContainsSubstring("stretto[E37]"));
  // A pair over n layers holds a handle of the forward or of the backward in each, and for a moment both in one.
  CHECK(refusal<2, TwoStream1F1B, OneFOneBOverlapped>(1, 4).empty());
  CHECK(refusal<4, TwoStream1F1B, OneFOneBOverlapped>(3, 4).empty());
  CHECK_THAT((refusal<3, TwoStream1F1B, OneFOneBOverlapped>(3, 4)), ContainsSubstring("stretto[E37]"));
  CHECK(refusal<0, TwoStream1F1B, OneFOneBOverlapped>(3, 4).empty());
}

TEST_CASE("what autograd or a limit ties to a lane must not leave it", "[limits]") {
  struct Start : Phase<attn> {
    using writes = values<loss>;
    void forward(int) {}
  };
  struct Tied : Block<Start> {};
  struct Free : Block<ByHand<attn, values<>, values<loss>>> {};
  auto const found = []<class B>(B, lane forward, lane backward) {
    block_facts const& f = dataflow_of<B>::value;
    chain_facts const& chain = chain_of<Blocks<B>>::value;
    op rows[2];
    rows[0].on = forward;
    rows[0].touches = access_of(f, chain, 0, pass::forward);
    rows[1].what = pass::backward;
    rows[1].on = backward;
    rows[1].touches = access_of(f, chain, 0, pass::backward);
    for (op& row : rows) row.next_group = 1;
    link(rows, 2, 2, 1);
    return check_table(rows, 2, 2, 1);
  };
  diagnosis const left = found(Tied{}, lane::comm, lane::compute);
  CHECK(left.what == fault::backward_leaves_lane);
  CHECK((left.at == 1 && left.other == 0));
  CHECK_FALSE(found(Tied{}, lane::comm, lane::comm));
  CHECK_FALSE(found(Free{}, lane::comm, lane::compute));

  // W uses what I left on its lane.
  auto const with_weights_on = []<class B>(B, lane weights) {
    block_facts const& f = dataflow_of<B>::value;
    chain_facts const& chain = chain_of<Blocks<B>>::value;
    op rows[3];
    pass const order[] = {pass::forward, pass::backward_input, pass::backward_weight};
    for (int i = 0; i < 3; ++i) {
      rows[i].what = order[i];
      rows[i].on = i == 2 ? weights : lane::compute;
      rows[i].touches = access_of(f, chain, 0, order[i]);
      rows[i].next_group = 1;
    }
    link(rows, 3, 2, 1);
    return check_table(rows, 3, 2, 1);
  };
  CHECK(with_weights_on(Tied{}, lane::comm).what == fault::backward_leaves_lane);
  CHECK_FALSE(with_weights_on(Tied{}, lane::compute));
  CHECK_FALSE(with_weights_on(Free{}, lane::comm));
}
