#include "support/toy_rows.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace stretto;
using toy::Model;

namespace {

struct Tail : Phase<mtp> {
  using reads = values<toy::hidden>;
  using writes = values<toy::hidden>;
  void forward(auto&) {}
};
/// Every kind of phase in one block.
struct TailedLayer
    : Block<toy::Attention, Detach, toy::Dispatch, Detach, toy::Experts, Detach, toy::Combine, Detach, Tail> {
};
struct Tailed : Blocks<toy::MoeLayer, TailedLayer, toy::DenseLayer> {};

void append(pair_builder& to, request const& r) {
  if (r.on == lane::comm)
    to.comm(r);
  else
    to.compute(r);
}
pair_builder without(pair_builder const& order, int dropped) {
  pair_builder result;
  for (int i = 0; i < order.size(); ++i)
    if (i != dropped) append(result, order[i]);
  return result;
}
/// Repeats one request behind another one.
pair_builder with_twice(pair_builder const& order, int doubled, int behind) {
  pair_builder result;
  for (int i = 0; i < order.size(); ++i) {
    append(result, order[i]);
    if (i == behind) append(result, order[doubled]);
  }
  return result;
}

struct sides {
  int forward, backward;
};

detail::draft make(pair_builder const& order, sides blocks, form f, bool split) {
  auto const facts = [](int k) -> block_facts const* {
    return k < 0 ? nullptr : detail::facts_at<Tailed>(k, std::make_integer_sequence<int, Tailed::count>{});
  };
  return detail::checked(detail::body_maker(facts(blocks.forward), facts(blocks.backward),
                                            chain_of<Tailed>::value, {blocks.forward, blocks.backward}, f,
                                            split)
                             .make(order));
}

/// The phase and pass that a request runs in this body; -1 if there is none.
struct target {
  int phase = -1;
  pass what = pass::forward;
};
target target_of(request const& r, sides blocks, form f, bool split) {
  bool const forward = r.what == pass::forward;
  int const k = forward ? blocks.forward : blocks.backward;
  if (k < 0) return {};
  block_facts const& facts = *detail::facts_at<Tailed>(k, std::make_integer_sequence<int, Tailed::count>{});
  int phase = 0;
  while (phase < facts.phases && facts.kind[phase] != r.kind) ++phase;
  if (phase == facts.phases) return {};
  if (forward) return {phase, pass::forward};
  bool const halves =
      (split || f == form::backward_input || f == form::backward_weight) && facts.has_weights[phase];
  if (!halves) {
    if (r.what == pass::backward_weight || f == form::backward_weight) return {};
    return {phase, pass::backward};
  }
  if (r.what == pass::backward && f == form::forward_backward) return {phase, pass::backward_input};
  if (f == form::backward_weight)
    return r.what == pass::backward_input ? target{} : target{phase, pass::backward_weight};
  if (f == form::backward_input && r.what == pass::backward_weight) return {};
  return {phase, r.what == pass::backward ? pass::backward_input : r.what};
}

template <class Policy> void census_of(bool split, int& dropped, int& doubled) {
  sides const pairs[] = {{1, 1}, {0, 0}, {2, 0}, {0, 2}, {2, 2}};
  for (form const f :
       {form::forward_backward, form::forward, form::backward, form::backward_input, form::backward_weight})
    for (sides blocks : pairs) {
      if (!has_forward(f)) blocks.forward = -1;
      if (!has_backward(f)) blocks.backward = -1;
      pair_builder const order = detail::order_of<Policy>(f);
      REQUIRE_FALSE(make(order, blocks, f, split).problem);
      for (int i = 0; i < order.size(); ++i) {
        target const hit = target_of(order[i], blocks, f, split);
        CAPTURE(static_cast<int>(f), blocks.forward, blocks.backward, split, i, name_of(order[i].kind),
                letter_of(order[i].what));
        int const block = order[i].what == pass::forward ? blocks.forward : blocks.backward;

        diagnosis const lost = make(without(order, i), blocks, f, split).problem;
        CHECK(lost.what == (hit.phase < 0 ? fault::none : fault::missing_node));
        for (int behind = i; behind < order.size(); ++behind) {
          diagnosis const twice = make(with_twice(order, i, behind), blocks, f, split).problem;
          CHECK(twice.what == (hit.phase < 0 ? fault::none : fault::doubled_node));
          if (hit.phase < 0) continue;
          ++doubled;
          CHECK(twice.at == hit.phase);
          CHECK(twice.cell == static_cast<int>(hit.what));
          CHECK(twice.block == block);
        }
        if (hit.phase < 0) continue;
        ++dropped;
        CHECK(lost.at == hit.phase);
        CHECK(lost.block == block);
        CHECK(lost.cell == static_cast<int>(hit.what));
      }
    }
}

} // namespace

TEST_CASE("dropping or doubling any op of a shipped policy is refused, and names phase and pass",
          "[census]") {
  int dropped = 0, doubled = 0;
  census_of<TwoStream1F1B>(true, dropped, doubled);
  census_of<TwoStream1F1B>(false, dropped, doubled);
  census_of<Serial>(false, dropped, doubled);
  CHECK(dropped > 200);
  CHECK(doubled > dropped);
}

TEST_CASE("a serial policy with SplitDW runs both halves at the backward", "[census]") {
  pair_builder const order = detail::order_of<Serial>(form::forward_backward);
  detail::draft const d = make(order, {0, 0}, form::forward_backward, true);
  REQUIRE_FALSE(d.problem);
  CHECK(toy::names_of<Tailed>(d.ops, d.count) ==
        std::vector<std::string>{"F.attn", "F.dispatch", "F.mlp", "F.combine", "B.combine", "I.mlp", "W.mlp",
                                 "B.dispatch", "I.attn", "W.attn"});
}

TEST_CASE("orders that the dataflow forbids are refused where they go wrong", "[census]") {
  auto const problem_of = [](auto... requests) {
    pair_builder p;
    (append(p, requests), ...);
    return make(p, {-1, 0}, form::backward, true).problem;
  };
  backward_side const b;
  auto const on_comm = [](request r) { return r.on = lane::comm, r; };
  CHECK_FALSE(problem_of(on_comm(b.backward(combine)), b.input(mlp), b.weight(mlp),
                         on_comm(b.backward(dispatch)), b.input(attn), b.weight(attn)));
  auto const early_input = problem_of(b.input(mlp), on_comm(b.backward(combine)), b.weight(mlp),
                                      on_comm(b.backward(dispatch)), b.input(attn), b.weight(attn));
  CHECK(early_input.what == fault::unwritten_read);
  CHECK(early_input.at == 1);
  auto const early_weight = problem_of(on_comm(b.backward(combine)), b.weight(mlp), b.input(mlp),
                                       on_comm(b.backward(dispatch)), b.input(attn), b.weight(attn));
  CHECK(early_weight.what == fault::weight_before_input);
  CHECK(early_weight.at == 2);
}

TEST_CASE("two phases of one node on different lanes need a cut", "[census]") {
  struct Uncut : Block<toy::Attention, toy::Dispatch, Detach, toy::Experts, Detach, toy::Combine> {};
  constexpr block_facts const& facts = dataflow_of<Uncut>::value;
  pair_builder const order = detail::order_of<TwoStream1F1B>(form::forward);
  diagnosis const d =
      detail::body_maker(&facts, nullptr, chain_of<Blocks<Uncut>>::value, {0, -1}, form::forward, false)
          .make(order)
          .problem;
  CHECK(d.what == fault::missing_cut);
  CHECK(d.at == 0);
  CHECK(d.other == 1);
  // Backward names the second first; what is said keeps the order of the block.
  diagnosis const back =
      detail::body_maker(nullptr, &facts, chain_of<Blocks<Uncut>>::value, {-1, 0}, form::backward, false)
          .make(detail::order_of<TwoStream1F1B>(form::backward))
          .problem;
  CHECK((back.what == fault::missing_cut && back.at == 0 && back.other == 1));
  // On one lane no cut is needed.
  pair_builder const serial = detail::order_of<Serial>(form::forward);
  CHECK_FALSE(
      detail::body_maker(&facts, nullptr, chain_of<Blocks<Uncut>>::value, {0, -1}, form::forward, false)
          .make(serial)
          .problem);
}

TEST_CASE("a policy with more requests than the builder holds is refused", "[census]") {
  pair_builder p;
  for (int i = 0; i < pair_builder::capacity; ++i) p.compute(p.f.forward(mtp));
  CHECK(make(p, {2, -1}, form::forward, false).problem.what == fault::missing_node);
  p.compute(p.f.forward(mtp));
  CHECK(make(p, {2, -1}, form::forward, false).problem.what == fault::too_large);
}
