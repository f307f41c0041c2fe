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

namespace {

/// Phases of one block, each with so many handles of a communicator, or a limit of its own.
template <int Number> struct made : value {};
template <int Handles> struct Buffers { static constexpr int in_flight = Handles; };
struct Begin : ByHand<attn, values<>, values<made<0>>> {};
template <int Number, class Communicator>
struct Takes : ByHand<dispatch, values<made<Number - 1>>, values<made<Number>>> {
  using communicator = Communicator;
};
template <int Number, int Limit>
struct Limits : ByHand<dispatch, values<made<Number - 1>>, values<made<Number>>> {
  static constexpr int in_flight = Limit;
};
struct End : ByHand<mlp, values<made<2>>, values<loss>> {};
template <class First, class Second> struct OneNode : Block<Begin, Detach, First, Second, Detach, End> {};
template <class First, class Second>
struct TwoNodes : Block<Begin, Detach, First, Detach, Second, Detach, End> {};

/// What GPipe, with every forward first, is told for so many microbatches; empty: nothing.
template <class B, class... Phases> std::string all_forwards_first(int microbatches) {
  layer_list<Blocks<B>> list;
  list.add(layer<B>(Begin{}, Phases{}..., End{}));
  null_tensors tensors;
  null_lanes lanes;
  try {
    executor run(Schedule<B, Serial, GPipe>{}, backend{tensors, lanes}, list,
                 sizes{.microbatches = microbatches});
  } catch (std::invalid_argument const& refused) {
    return refused.what();
  }
  return {};
}
template <template <class, class> class B, class First, class Second> std::string both(int microbatches) {
  return all_forwards_first<B<First, Second>, First, Second>(microbatches);
}

} // namespace

TEST_CASE("each limit of a node counts for itself", "[limits]") {
  using Three = Limits<1, 3>;
  using Two = Limits<2, 2>;
  CHECK(both<OneNode, Three, Two>(2).empty());
  CHECK_THAT((both<OneNode, Three, Two>(3)),
             ContainsSubstring("stretto[E37]") && ContainsSubstring("F.dispatch (Limits"));
  using Four = Limits<2, 4>;
  CHECK(both<OneNode, Three, Four>(3).empty());
  CHECK_THAT((both<OneNode, Three, Four>(4)), ContainsSubstring("stretto[E37]"));
}

TEST_CASE("phases that share a communicator share its buffers", "[limits]") {
  using First = Takes<1, Buffers<4>>;
  using Second = Takes<2, Buffers<4>>;
  CHECK(both<TwoNodes, First, Second>(2).empty());
  CHECK_THAT((both<TwoNodes, First, Second>(3)), ContainsSubstring("stretto[E37]"));
  CHECK(both<OneNode, First, Second>(2).empty());
  CHECK_THAT((both<OneNode, First, Second>(3)), ContainsSubstring("stretto[E37]"));
  // Another communicator has buffers of its own, and some have as many as one likes.
  CHECK(both<TwoNodes, First, Takes<2, Buffers<5>>>(4).empty());
  CHECK(both<TwoNodes, Takes<1, Buffers<0>>, Takes<2, Buffers<0>>>(9).empty());
}

TEST_CASE("a model has room for so many limits", "[limits]") {
  auto const problem = []<int... Number>(std::integer_sequence<int, Number...>) {
    return check_chain(chain_of<Blocks<Block<Limits<Number + 1, 3>>...>>::value).what;
  };
  CHECK(problem(std::make_integer_sequence<int, max_limited + 1>{}) == fault::too_large);
  // The values that they read come from nowhere, which is all that is wrong with fewer.
  CHECK(problem(std::make_integer_sequence<int, max_limited>{}) == fault::never_produced);
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
