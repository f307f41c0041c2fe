#include <stretto/adapters/null.hpp>
#include <stretto/check/proof.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace stretto;

namespace {

struct hidden : value {};
struct normed : value {};
struct kept : value {};
struct noted : metadata {
  using type = int;
};
struct loss : objective {};

template <phase_kind Kind, class Reads, class Writes> struct Forward : Phase<Kind> {
  using reads = Reads;
  using writes = Writes;
  void forward(auto&) {}
};
template <phase_kind Kind, class Reads, class Writes> struct Whole : Forward<Kind, Reads, Writes> {
  void backward(auto&) {}
};
template <phase_kind Kind, class Reads, class Writes> struct Split : Forward<Kind, Reads, Writes> {
  void backward_input(auto&) {}
  void backward_weight(auto&) {}
};
using Norm = Split<attn, values<hidden>, values<normed>>;
using Mlp = Split<mlp, values<normed>, values<hidden>>;

template <class Block, class... Policies> diagnosis proof_of() {
  return detail::fault_in<Schedule<Block, Policies...>>::value.d;
}
struct NoPolicy {};

struct Drawn : Phase<mlp> {
  using reads = values<normed>;
  using writes = values<hidden>;
  void backward(auto&) {}
};
template <class Block, class Tensors = null_tensors> fault run_fault() {
  return detail::unrunnable_in<Schedule<Block, Serial>, Tensors>::value.what;
}

struct autograd_tensors : null_tensors {
  int forward_scope(context&) { return 0; }
  void forget_graph(tensor&) {}
  void backward(context&, gradient_request<tensor> const&, auto&...) {}
  void backward_input(context&, gradient_request<tensor> const&, auto&...) {}
  void backward_weight(context&, auto&...) {}
};

} // namespace

TEST_CASE("a schedule is one layer policy, at most one pipeline, and SplitDW", "[proof]") {
  using Layer = Block<Norm, Detach, Mlp>;
  CHECK(proof_of<Layer, Serial>().what == fault::none);
  CHECK(proof_of<Layer, SplitDW, OneFOneB, TwoStream1F1B>().what == fault::none);
  CHECK(proof_of<Layer>().what == fault::not_a_policy);
  CHECK(proof_of<Layer, Serial, TwoStream1F1B>().what == fault::not_a_policy);
  CHECK(proof_of<Layer, Serial, OneFOneB, SerialPipeline>().what == fault::not_a_policy);
  CHECK(proof_of<Layer, Serial, NoPolicy>().what == fault::not_a_policy);
}

TEST_CASE("backwards written by hand have the halves that run", "[proof]") {
  using WholeMlp = Whole<mlp, values<normed>, values<hidden>>;
  CHECK(proof_of<Block<Norm, Detach, WholeMlp>, TwoStream1F1B>().what == fault::none);
  diagnosis const lacks = proof_of<Block<Norm, Detach, WholeMlp>, TwoStream1F1B, SplitDW>();
  CHECK((lacks.what == fault::no_backward_weight && lacks.at == 1));
  CHECK(proof_of<Block<Norm, Detach, Mlp>, TwoStream1F1B, SplitDW>().what == fault::none);
}

TEST_CASE("one node has one kind of backward", "[proof]") {
  using Graph = Forward<mlp, values<normed>, values<hidden>>;
  CHECK(proof_of<Block<Norm, Detach, Graph>, Serial>().what == fault::none);
  CHECK(proof_of<Block<Norm, Graph>, Serial>().what == fault::mixed_backward);
}

TEST_CASE("what is carried is read and not written, and nobody reads an objective", "[proof]") {
  struct Carrier : Block<Norm> {
    using carries = values<hidden>;
  };
  struct Rewriter : Block<Norm, Detach, Mlp> {
    using carries = values<hidden>;
  };
  CHECK_FALSE(check_block(dataflow_of<Carrier>::value, 0));
  CHECK(check_block(dataflow_of<Rewriter>::value, 0).what == fault::carried_wrongly);

  struct Head : Block<Split<mlp, values<hidden>, values<loss>>> {};
  struct Twice
      : Block<Split<mlp, values<hidden>, values<loss>>, Detach, Split<mtp, values<loss>, values<normed>>> {};
  CHECK_FALSE(check_block(dataflow_of<Head>::value, 0));
  CHECK(check_block(dataflow_of<Twice>::value, 0).what == fault::objective_read);
}

TEST_CASE("what nobody writes is told before that two nodes read it", "[proof]") {
  using Unwritten = Block<Split<attn, values<hidden, kept>, values<normed>>, Detach,
                          Split<mlp, values<normed, kept>, values<hidden>>>;
  using Unnoted = Block<Split<attn, values<hidden, noted>, values<normed>>, Detach,
                        Split<mlp, values<normed, noted>, values<hidden>>>;
  using Twice = Block<Norm, Detach, Split<mlp, values<normed, hidden>, values<hidden>>>;
  CHECK(proof_of<Unwritten, Serial>().what == fault::never_produced);
  CHECK(proof_of<Unnoted, Serial>().what == fault::metadata_crosses);
  CHECK(proof_of<Twice, Serial>().what == fault::input_of_two_nodes);
  // Another block writes it: then two readers are what is wrong.
  struct Source : Block<Split<attn, values<>, values<kept>>> {};
  CHECK(proof_of<Blocks<Source, Unwritten>, Serial>().what == fault::input_of_two_nodes);
}

TEST_CASE("an executor over autograd asks for where backward starts", "[proof]") {
  using Embedding = Block<Forward<attn, values<>, values<hidden>>>;
  using ByHand = Block<Norm, Detach, Whole<mlp, values<normed>, values<hidden>>>;
  auto const over_autograd = []<class Last>(std::type_identity<Last>) {
    return run_fault<Blocks<Embedding, ByHand, Last>, autograd_tensors>();
  };
  // The loss is a plain value; so is what a last phase hands to nobody.
  CHECK(over_autograd(std::type_identity<Block<Forward<mlp, values<hidden>, values<kept>>>>{}) ==
        fault::no_objective);
  CHECK(over_autograd(std::type_identity<Block<Forward<mlp, values<hidden>, values<>>>>{}) ==
        fault::no_objective);
  CHECK(over_autograd(std::type_identity<Block<Forward<mlp, values<hidden>, values<loss>>>>{}) ==
        fault::none);
  // A backward by hand behind which nothing lies starts it as well.
  CHECK(over_autograd(std::type_identity<Block<Whole<mlp, values<hidden>, values<kept>>>>{}) == fault::none);
  CHECK(over_autograd(std::type_identity<Block<Whole<mlp, values<hidden>, values<>>>>{}) == fault::none);
  // So does one of whose output only looks are taken: from a reader that hands on no tensor no gradient comes, wherever it is.
  using Source = Whole<mlp, values<hidden>, values<kept>>;
  using Look = Forward<mlp, values<kept>, values<noted>>;
  using Onward = Forward<mlp, values<kept>, values<normed>>;
  CHECK(over_autograd(std::type_identity<Block<Source, Detach, Look>>{}) == fault::none);
  CHECK(over_autograd(std::type_identity<Block<Source, Detach, Onward>>{}) == fault::no_objective);
  // Two phases of one node have one backward.
  CHECK(over_autograd(std::type_identity<Block<Source, Detach, Look, Onward>>{}) == fault::no_objective);
  auto const over_two = []<class Seen>(std::type_identity<Seen>) {
    return run_fault<Blocks<Embedding, Block<Source>, Seen>, autograd_tensors>();
  };
  CHECK(over_two(std::type_identity<Block<Look>>{}) == fault::none);
  CHECK(over_two(std::type_identity<Block<Onward>>{}) == fault::no_objective);
  CHECK(over_two(std::type_identity<Block<Look, Detach, Forward<mlp, values<>, values<normed>>>>{}) ==
        fault::none);
  // Where nothing is left to autograd there is nothing to say.
  CHECK(run_fault<ByHand, autograd_tensors>() == fault::none);
}

TEST_CASE("an executor asks for code that runs", "[proof]") {
  using Graph = Forward<mlp, values<normed>, values<hidden>>;
  CHECK(run_fault<Block<Norm, Detach, Mlp>>() == fault::none);
  CHECK(run_fault<Block<Norm, Detach, Graph>>() == fault::needs_autograd);
  CHECK(run_fault<Blocks<Block<Norm, Detach, Graph>, Block<Forward<mlp, values<hidden>, values<loss>>>>,
                  autograd_tensors>() == fault::none);
  CHECK(run_fault<Block<Norm, Detach, Drawn>, autograd_tensors>() == fault::no_forward);
}

TEST_CASE("autograd ties the lanes of all bodies of a node", "[proof]") {
  struct Wandering {
    static constexpr void pair(pair_builder& p) { p.comm(p.f.forward(attn), p.b.backward(attn)); }
    static constexpr void backward(pair_builder& p) { p.compute(p.b.backward(attn)); }
  };
  struct Free : Block<Split<attn, values<hidden>, values<hidden>>> {};
  struct Tied : Block<Forward<attn, values<hidden>, values<hidden>>> {};
  CHECK(proof_of<Free, Wandering>().what == fault::none);
  CHECK(proof_of<Tied, Wandering>().what == fault::backward_leaves_lane);
  CHECK(proof_of<Tied, Serial>().what == fault::none);
}
