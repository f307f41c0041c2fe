#include "support/toy_rows.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace stretto;
using toy::Model;
using names = std::vector<std::string>;

namespace {

// The block types of the toy model.
constexpr int embed = 0, moe = 1, dense = 2, head = 3;

using Split = Schedule<Model, TwoStream1F1B, SplitDW>;
using Whole = Schedule<Model, TwoStream1F1B>;

/// Attention backward before the experts' forward: less memory, less hidden.
struct EarlyAttention {
  static constexpr void pair(pair_builder& p) {
    auto [f, b] = std::pair{p.f, p.b};
    p.comm(b.backward(combine));
    p.compute(f.forward(attn), b.input(mlp));
    p.comm(b.backward(dispatch), f.forward(dispatch));
    p.compute(b.weight(mlp), b.input(attn), f.forward(mlp));
    p.comm(f.forward(combine));
    p.compute(b.weight(attn));
  }
};

/// Orders of its own for a lone forward and a lone backward.
struct OwnRamps {
  static constexpr void pair(pair_builder& p) { TwoStream1F1B::pair(p); }
  static constexpr void forward(pair_builder& p) {
    p.compute(p.f.forward(attn), p.f.forward(dispatch), p.f.forward(mlp), p.f.forward(combine));
  }
  static constexpr void backward(pair_builder& p) {
    p.compute(p.b.backward(combine), p.b.input(mlp), p.b.backward(dispatch), p.b.input(attn));
    p.compute(p.b.weight(mlp), p.b.weight(attn));
  }
};

template <class S, form F, int Forward, int Backward> struct body {
  static constexpr auto const& table = body_of<S, F, Forward, Backward>::value;
  static_assert(!draft_of<S, F, Forward, Backward>::value.problem);
  static names order() { return toy::names_of<typename S::model>(table.ops, table.size); }
  static names on(lane l) { return toy::names_on<typename S::model>(l, table.ops, table.size); }
  static names waits() { return toy::waits_of<typename S::model>(table.ops, table.size); }
  static bool runs_after(std::string const& later, std::string const& earlier) {
    int const a = toy::find_row<typename S::model>(later, table.ops, table.size);
    int const b = toy::find_row<typename S::model>(earlier, table.ops, table.size);
    REQUIRE(a >= 0);
    REQUIRE(b >= 0);
    return toy::runs_after(a, b, table.ops);
  }
};

} // namespace

TEST_CASE("an overlapped pair of MoE layers has the order of the design and 8 waits", "[body]") {
  using pair = body<Split, form::forward_backward, moe, moe>;
  CHECK(pair::order() == names{"B.combine", "F.attn", "I.mlp", "F.dispatch", "B.dispatch", "W.mlp", "F.mlp",
                               "F.combine", "I.attn", "W.attn"});
  CHECK(pair::on(lane::compute) == names{"F.attn", "I.mlp", "W.mlp", "F.mlp", "I.attn", "W.attn"});
  CHECK(pair::on(lane::comm) == names{"B.combine", "F.dispatch", "B.dispatch", "F.combine"});
  CHECK(pair::table.waits() == 8);
  CHECK(pair::waits() == names{"B.combine after backward port", "F.attn after forward port",
                               "I.mlp after B.combine", "F.dispatch after F.attn", "B.dispatch after I.mlp",
                               "F.mlp after F.dispatch", "F.combine after F.mlp", "I.attn after B.dispatch"});
}

TEST_CASE("the experts' weight gradient does not delay the backward dispatch", "[body][megatron-05]") {
  using pair = body<Split, form::forward_backward, moe, moe>;
  CHECK_FALSE(pair::runs_after("B.dispatch", "W.mlp"));
  CHECK(pair::runs_after("B.dispatch", "I.mlp"));
  CHECK(pair::runs_after("W.mlp", "I.mlp"));
  CHECK(pair::runs_after("W.attn", "I.attn"));
  // The two microbatches meet on lanes only.
  CHECK_FALSE(pair::runs_after("B.combine", "F.attn"));
  CHECK_FALSE(pair::runs_after("F.attn", "B.combine"));
}

TEST_CASE("without SplitDW the halves are one op, in the place of the input half", "[body]") {
  using pair = body<Whole, form::forward_backward, moe, moe>;
  CHECK(pair::order() ==
        names{"B.combine", "F.attn", "B.mlp", "F.dispatch", "B.dispatch", "F.mlp", "F.combine", "B.attn"});
  CHECK(pair::table.waits() == 8);
}

TEST_CASE("kinds that a block lacks vanish", "[body]") {
  using f_dense = body<Split, form::forward_backward, dense, moe>;
  CHECK(f_dense::order() ==
        names{"B.combine", "F.attn", "I.mlp", "B.dispatch", "W.mlp", "F.mlp", "I.attn", "W.attn"});
  CHECK(f_dense::table.waits() == 5);
  using b_dense = body<Split, form::forward_backward, moe, dense>;
  CHECK(b_dense::order() ==
        names{"F.attn", "I.mlp", "F.dispatch", "W.mlp", "F.mlp", "F.combine", "I.attn", "W.attn"});
  CHECK(b_dense::table.waits() == 5);
  using both = body<Split, form::forward_backward, dense, dense>;
  CHECK(both::order() == names{"F.attn", "I.mlp", "W.mlp", "F.mlp", "I.attn", "W.attn"});
  CHECK(both::waits() == names{"F.attn after forward port", "I.mlp after backward port"});
  // An embedding reads nothing and a head hands nothing on.
  using ends = body<Split, form::forward_backward, embed, head>;
  CHECK(ends::order() == names{"F.attn", "I.mlp", "W.mlp"});
  CHECK(ends::waits() == names{"I.mlp after backward port"});
}

TEST_CASE("a layer alone runs the order of its side", "[body]") {
  using f = body<Split, form::forward, moe, -1>;
  CHECK(f::waits() == names{"F.attn after forward port", "F.dispatch after F.attn", "F.mlp after F.dispatch",
                            "F.combine after F.mlp"});
  using b = body<Split, form::backward, -1, moe>;
  CHECK(b::order() == names{"B.combine", "I.mlp", "B.dispatch", "W.mlp", "I.attn", "W.attn"});
  CHECK(b::table.waits() == 4);
  using i = body<Split, form::backward_input, -1, moe>;
  CHECK(i::order() == names{"B.combine", "I.mlp", "B.dispatch", "I.attn"});
  CHECK(i::table.waits() == 4);
  using w = body<Split, form::backward_weight, -1, moe>;
  CHECK(w::order() == names{"W.mlp", "W.attn"});
  CHECK(w::waits() == names{"W.mlp after backward port"});
  // Phases without weights have no W, and halves are the same with and without SplitDW.
  CHECK(body<Whole, form::backward_weight, -1, moe>::order() == w::order());
  CHECK(body<Whole, form::backward_input, -1, moe>::order() == i::order());
  CHECK(body<Whole, form::backward, -1, moe>::order() == names{"B.combine", "B.mlp", "B.dispatch", "B.attn"});
}

TEST_CASE("the serial policy is one lane", "[body]") {
  using pair = body<Schedule<Model, Serial>, form::forward_backward, moe, moe>;
  CHECK(pair::order() ==
        names{"F.attn", "F.dispatch", "F.mlp", "F.combine", "B.combine", "B.mlp", "B.dispatch", "B.attn"});
  CHECK(pair::on(lane::comm).empty());
  CHECK(pair::waits() == names{"F.attn after forward port", "B.combine after backward port"});
}

TEST_CASE("a policy of the user needs ten lines", "[body]") {
  using Early = Schedule<Model, EarlyAttention, SplitDW>;
  using pair = body<Early, form::forward_backward, moe, moe>;
  CHECK(pair::table.waits() == 7);
  CHECK(pair::on(lane::compute) == names{"F.attn", "I.mlp", "W.mlp", "I.attn", "F.mlp", "W.attn"});
  CHECK(pair::on(lane::comm) == names{"B.combine", "B.dispatch", "F.dispatch", "F.combine"});
  CHECK(body<Early, form::forward_backward, dense, moe>::table.waits() == 5);
  CHECK(body<Early, form::forward_backward, dense, dense>::table.waits() == 2);
  CHECK(proof<Early>::holds);
}

TEST_CASE("a policy may order a lone forward and a lone backward in its own way", "[body]") {
  using Ramps = Schedule<Model, OwnRamps, SplitDW>;
  CHECK(body<Ramps, form::forward, moe, -1>::waits() == names{"F.attn after forward port"});
  CHECK(body<Ramps, form::backward, -1, moe>::order() ==
        names{"B.combine", "I.mlp", "B.dispatch", "I.attn", "W.mlp", "W.attn"});
  CHECK(body<Ramps, form::forward_backward, moe, moe>::order() ==
        body<Split, form::forward_backward, moe, moe>::order());
}

TEST_CASE("values with several readers cost no wait more", "[body]") {
  using OddSplit = Schedule<toy::OddModel, TwoStream1F1B, SplitDW>;
  CHECK(body<OddSplit, form::forward_backward, 1, 1>::table.waits() == 8);
}

TEST_CASE("events of a body are reused and never overlap", "[body]") {
  constexpr auto const& table = body_of<Split, form::forward_backward, moe, moe>::value;
  constexpr auto events = detail::number_events(table);
  CHECK(events.count == 2);
  for (int i = 0; i < table.size; ++i) {
    int last = -1;
    for (int j = 0; j < table.size; ++j)
      for (int w : table.ops[j].wait)
        if (w == i && !table.ops[i].is_port()) last = j;
    CHECK((events.id[i] >= 0) == (last >= 0));
    for (int j = i + 1; j < last; ++j) CHECK((events.id[j] != events.id[i] || last < 0));
  }
  CHECK(toy::name_of_row<Model>(table.ops[detail::forward_export(table)]) == "F.combine");
  CHECK(toy::name_of_row<Model>(table.ops[detail::backward_export(table)]) == "I.attn");
}
