#include "support/toy.hpp"

#include <catch2/catch_test_macros.hpp>

#include <concepts>
#include <memory>
#include <utility>

using namespace stretto;
using toy::DenseLayer, toy::FusedLayer, toy::HeadLayer, toy::MoeLayer, toy::SharedLayer;

namespace {

template <class B> constexpr block_facts const& facts = dataflow_of<B>::value;
template <class V> constexpr detail::type_id id = detail::id_of<V>();

struct a : value {};
struct b : value {};
struct c : value {};
struct d : value {};
struct e : value {};
struct note : metadata {
  using type = int;
};

template <int Number> struct numbered : value {};
template <int First, int... More> constexpr auto numbered_from(std::integer_sequence<int, More...>) {
  return values<numbered<First + More>...>{};
}
template <int First, int Count>
using numbered_values = decltype(numbered_from<First>(std::make_integer_sequence<int, Count>{}));

template <int Number, class Reads, class Writes> struct Step : Phase<mlp> {
  using reads = Reads;
  using writes = Writes;
  void forward(auto&) {}
};

} // namespace

TEST_CASE("phases between two cuts are one node", "[block]") {
  block_facts const& moe = facts<MoeLayer>;
  CHECK(moe.phases == 4);
  CHECK(moe.nodes == 4);
  CHECK(moe.kind[1] == dispatch);
  CHECK(moe.first_phase_of(3) == 3);
  CHECK(moe.first_phase_of(4) == -1);
  CHECK(moe.name == detail::text{"MoeLayer", 8});
  CHECK(moe.phase_name[2] == detail::text{"Experts", 7});

  block_facts const& fused = facts<FusedLayer>;
  CHECK(fused.phases == 2);
  CHECK(fused.nodes == 1);
  CHECK(fused.node_of[1] == 0);

  using One = Step<0, values<a>, values<b>>;
  using Two = Step<1, values<b>, values<c>>;
  CHECK(Block<Detach, One, Detach, Detach, Two, Detach>::describe().nodes == 2);
  CHECK(Block<>::describe().nodes == 0);
}

TEST_CASE("values are inputs, bridges or outputs by who reads and writes them", "[block]") {
  block_facts const& moe = facts<MoeLayer>;
  REQUIRE(moe.inputs == 1);
  CHECK(moe.input[0] == id<toy::hidden>);
  CHECK(moe.input_node[0] == 0);
  CHECK_FALSE(moe.input_is_metadata[0]);

  REQUIRE(moe.roots == 8);
  int const residual = moe.find_root(id<toy::residual>), handed_on = moe.find_root(id<toy::hidden>);
  CHECK(moe.root_writer[residual] == 0);
  CHECK_FALSE(moe.root_is_output[residual]);
  CHECK(moe.root_writer[handed_on] == 3);
  CHECK(moe.root_is_output[handed_on]);
  // The residual skips two nodes: written by the first, read by the last.
  int const bridge = moe.find_leaf(3, id<toy::residual>);
  REQUIRE(bridge >= 0);
  CHECK(moe.leaf_root[bridge] == residual);
  CHECK_FALSE(moe.leaf_inside_node[bridge]);
  CHECK(moe.find_leaf(1, id<toy::residual>) == -1);
  CHECK(moe.find_root_of(0, id<toy::hidden>) == -1);
  CHECK(moe.find_leaf_of_input(id<toy::hidden>) == 0);
  CHECK(moe.find_leaf_of_input(id<toy::tokens>) == -1);
}

TEST_CASE("metadata and objectives are told apart", "[block]") {
  block_facts const& moe = facts<MoeLayer>;
  int const routing = moe.find_root(id<toy::routing>);
  CHECK(moe.root_is_metadata[routing]);
  CHECK_FALSE(moe.root_is_output[routing]);
  CHECK_FALSE(moe.root_is_metadata[moe.find_root(id<toy::tokens>)]);
  block_facts const& head = facts<HeadLayer>;
  REQUIRE(head.roots == 1);
  CHECK(head.root_is_objective[0]);
  CHECK_FALSE(head.root_is_output[0]);
}

TEST_CASE("each reader has a leaf of its own", "[block]") {
  block_facts const& shared = facts<SharedLayer>;
  int const tokens = shared.find_root(id<toy::tokens>);
  int const by_dispatch = shared.find_leaf(1, id<toy::tokens>),
            by_experts = shared.find_leaf(2, id<toy::tokens>);
  REQUIRE(by_dispatch >= 0);
  REQUIRE(by_experts >= 0);
  CHECK(by_dispatch != by_experts);
  CHECK(shared.leaf_root[by_dispatch] == tokens);
  CHECK(shared.leaf_root[by_experts] == tokens);
  // Inside one node nothing is detached.
  block_facts const& fused = facts<FusedLayer>;
  CHECK(fused.leaf_inside_node[fused.find_leaf(1, id<toy::normed>)]);
  CHECK_FALSE(fused.leaf_inside_node[fused.find_leaf(0, id<toy::hidden>)]);
}

TEST_CASE("what a phase can do is found from its members", "[block]") {
  block_facts const& moe = facts<MoeLayer>;
  CHECK(moe.has_weights[0]);
  CHECK_FALSE(moe.has_weights[1]);
  CHECK(moe.node_has_weights(2));
  CHECK_FALSE(moe.node_has_weights(3));
  for (int p = 0; p < 4; ++p) CHECK(moe.has_explicit_backward[p]);
  CHECK(moe.has_backward_weight[0]);
  CHECK_FALSE(moe.has_backward_weight[1]);
  block_facts const autograd = Block<Step<0, values<a>, values<b>>>::describe();
  CHECK_FALSE(autograd.has_explicit_backward[0]);
  CHECK(autograd.has_weights[0]);
}

TEST_CASE("blocks that are wrong by themselves are diagnosed", "[block]") {
  auto const fault_of = []<class B>(std::type_identity<B>) { return check_block(B::describe(), 3); };
  CHECK_FALSE(check_block(facts<MoeLayer>, 0));

  auto const twice = fault_of(
      std::type_identity<Block<Step<0, values<a>, values<b>>, Detach, Step<1, values<a>, values<c, b>>>>{});
  CHECK(twice.what == fault::written_twice);
  CHECK(twice.cell == 0);
  CHECK(twice.block == 3);

  auto const two_nodes =
      fault_of(std::type_identity<
               Block<Step<0, values<c, a>, values<b>>, Detach, Step<1, values<b, a>, values<d>>>>{});
  CHECK(two_nodes.what == fault::input_of_two_nodes);
  CHECK(two_nodes.cell == 1);
  // Two phases of one node may both read it.
  CHECK_FALSE(
      fault_of(std::type_identity<Block<Step<0, values<a>, values<b>>, Step<1, values<b, a>, values<d>>>>{}));
}

TEST_CASE("tables are filled to the brim and not beyond", "[block]") {
  // 16 values, 8 phases, 22 reads, 4 inputs fit; one more of each does not.
  using Sixteen = Block<Step<0, values<>, numbered_values<0, 16>>>;
  using Seventeen = Block<Step<0, values<>, numbered_values<0, 17>>>;
  CHECK_FALSE(check_block(Sixteen::describe(), 0));
  CHECK(Sixteen::describe().roots == 16);
  CHECK(check_block(Seventeen::describe(), 0).what == fault::too_large);

  using Reads22 = Block<Step<0, values<>, numbered_values<0, 11>>, Step<1, numbered_values<0, 11>, values<a>>,
                        Step<2, numbered_values<0, 11>, values<b>>>;
  using Reads23 = Block<Step<0, values<>, numbered_values<0, 12>>, Step<1, numbered_values<0, 12>, values<a>>,
                        Step<2, numbered_values<0, 11>, values<b>>>;
  CHECK_FALSE(check_block(Reads22::describe(), 0));
  CHECK(Reads22::describe().leaves == 22);
  CHECK(check_block(Reads23::describe(), 0).what == fault::too_large);

  CHECK_FALSE(check_block(Block<Step<0, numbered_values<0, 4>, values<a>>>::describe(), 0));
  CHECK(check_block(Block<Step<0, numbered_values<0, 5>, values<a>>>::describe(), 0).what ==
        fault::too_large);

  auto const phases = []<int... Number>(std::integer_sequence<int, Number...>) {
    return Block<Step<Number, values<>, values<numbered<Number>>>...>::describe();
  };
  CHECK_FALSE(check_block(phases(std::make_integer_sequence<int, 8>{}), 0));
  CHECK(check_block(phases(std::make_integer_sequence<int, 9>{}), 0).what == fault::too_large);
}

TEST_CASE("values between layers need a writer", "[block]") {
  struct Source : Block<Step<0, values<>, values<a>>> {};
  struct Middle : Block<Step<0, values<a>, values<a>>> {};
  struct Sink : Block<Step<0, values<a>, values<c>>> {};
  struct Lost : Block<Step<0, values<d, e>, values<c>>> {};
  struct Note : Block<Step<0, values<note>, values<c>>> {};

  CHECK_FALSE(check_chain(chain_of<Blocks<Source, Middle, Sink>>::value));
  CHECK(chain_of<Blocks<Source, Middle, Sink>>::value.count == 1);
  auto const lost = check_chain(chain_of<Blocks<Source, Sink, Lost>>::value);
  CHECK(lost.what == fault::never_produced);
  CHECK(lost.block == 2);
  CHECK(lost.cell == 0);
  // Metadata stays within its layer.
  auto const crossing = check_chain(chain_of<Blocks<Source, Note>>::value);
  CHECK(crossing.what == fault::metadata_crosses);
  CHECK(crossing.block == 1);

  struct Wide : Block<Step<0, numbered_values<0, 4>, numbered_values<0, 4>>> {};
  CHECK_FALSE(check_chain(chain_of<Blocks<Wide>>::value));
  CHECK(check_chain(chain_of<Blocks<Wide, Source, Sink>>::value).what == fault::too_large);
}

TEST_CASE("a layer is made of phases or of what they are made from", "[block]") {
  struct Made : Step<0, values<a>, values<b>> {
    Made(int x, int y) : sum(std::make_unique<int>(x + y)) {}
    std::unique_ptr<int> sum;
  };
  struct Other : Step<1, values<b>, values<c>> {};
  using one = layer<Block<Made>>;
  using two = layer<Block<Made, Other>>;
  CHECK(*one({1, 2}).phase<Made>().sum == 3);
  CHECK(*one{{1, 2}}.phase<Made>().sum == 3);
  CHECK(*two({1, 2}, {}).phase<Made>().sum == 3);
  CHECK(*two(Made(1, 2), Other()).phase<Made>().sum == 3);
  static_assert(std::move_constructible<two>);
  // What is refused in words seems to make a layer; copies of what cannot be copied do not, nor does what needs braces.
  static_assert(!std::constructible_from<two, two&> && !std::constructible_from<two, two const&>);
  static_assert(!std::constructible_from<one, int, int> && !std::convertible_to<int, two>);
}

TEST_CASE("names and identities of types", "[block]") {
  CHECK(detail::name_of_type<toy::hidden>() == detail::text{"hidden", 6});
  CHECK(detail::name_of_type<numbered<3>>() == detail::text{"numbered", 8});
  CHECK(id<toy::hidden> == id<toy::hidden>);
  CHECK(id<toy::hidden> != id<toy::tokens>);
}
