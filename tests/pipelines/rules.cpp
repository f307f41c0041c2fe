#include "oracle.hpp"

#include <stretto/pipelines/all.hpp>
#include <stretto/pipelines/policies.hpp>
#include <stretto/pipelines/proof.hpp>
#include <stretto/plan/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <set>

using namespace stretto;

namespace {

/// Serves even numbers of microbatches only, as DualPipe with its two streams does.
struct Even : SerialPipeline {
  static constexpr char const* name = "even";
  static constexpr int microbatch_multiple(int) { return 2; }
};
static_assert(pipeline<Even> && !prove<Even>());

/// B first: no rank can ever start.
struct BackwardFirst : SerialPipeline {
  static constexpr char const* name = "backward_first";
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) sink(call::backward(0, m)), sink(call::forward(0, m));
  }
};
static_assert(prove<BackwardFirst>().what == fault::too_early);

/// Forgets the last backward, and serves no program that is small enough for the compiler to see it.
struct Vast : SerialPipeline {
  static constexpr char const* name = "vast";
  static constexpr int min_microbatches(int) { return 1001; }
  static constexpr int peak_live(int, int, int, int) { return 2; }
  static constexpr void run(int, int, int microbatches, int, auto&& sink) {
    for (int m = 0; m < microbatches; ++m) {
      sink(call::forward(0, m));
      if (m < microbatches - 1) sink(call::backward(0, m));
    }
  }
};
/// One microbatch less, and it is seen.
struct JustSmallEnough : Vast {
  static constexpr int min_microbatches(int) { return 1000; }
};
static_assert(pipeline_proof<Vast>::at_construction && !prove<Vast>());
static_assert(prove<JustSmallEnough>().what == fault::missing);
static_assert(!pipeline_proof<DualPipeV>::at_construction &&
              !pipeline_proof<InterleavedOverlapped<>>::at_construction);

plan_diagnosis verdict(plan_facts const& facts, std::vector<std::vector<call>> const& ranks, int bound = -1) {
  return check_plan(oracle::plan_of({facts, ranks, std::vector<int>(ranks.size(), bound)}));
}

plan_facts facts(int ranks, int microbatches, bool pairs, bool splits, int chunks = 1) {
  return {"mine", placement::looped, ranks, microbatches, chunks, pairs, splits, 1, 8, 1, 1};
}

/// The fault, checked to come with a sentence that has its code, its place and its remedy.
fault told(plan_facts const& of, plan_diagnosis const& wrong) {
  if (!wrong) return fault::none;
  std::string const text = sentence(of, wrong);
  INFO(text);
  std::string const whole = rule_of(wrong.what).sentence;
  auto const code_end = whole.find("]: ") + 3, remedy = whole.find(';');
  CHECK(text.starts_with(whole.substr(0, code_end) + of.name));
  CHECK(text.find(whole.substr(code_end, remedy - code_end)) != std::string::npos);
  CHECK(text.ends_with(whole.substr(remedy)));
  CHECK(text.find('\n') == std::string::npos);
  if (wrong.rank >= 0) CHECK(text.find("rank " + std::to_string(wrong.rank)) != std::string::npos);
  CHECK_THROWS_AS(require(of, wrong), std::invalid_argument);
  return wrong.what;
}

} // namespace

TEST_CASE("a program that is too large for the compiler says so, and is proved when it is made", "[plans]") {
  CHECK(check_plan<Vast>(1, 1001).what == fault::missing);
  CHECK_THROWS_AS(proved_plan<Vast>(1, 1001), std::invalid_argument);
}

TEST_CASE("every rule has a code of its own, in ascending order, a sentence and a remedy", "[megatron-33]") {
  std::string last;
  for (rule const& one : rules) {
    std::string const text = one.sentence, code = "stretto[" + std::string(one.code) + "]: ";
    CAPTURE(code);
    CHECK(code > last);
    last = code;
    CHECK(text.starts_with(code));
    auto const remedy = text.find("; ");
    REQUIRE(remedy != std::string::npos);
    CHECK(remedy > code.size() + 10);
    CHECK(text.size() > remedy + 10);
    CHECK(&rule_of(one.what) == &one);
  }
}

TEST_CASE("sizes are refused before anything is built") {
  auto const sizes = []<class Pipeline>(Pipeline, int ranks, int microbatches, int chunks = 0) {
    plan_facts const of = facts_of<Pipeline>(ranks, microbatches, chunks);
    return told(of, check_sizes(of));
  };
  CHECK(sizes(DualPipeV{}, 0, 8) == fault::size_out_of_range);
  CHECK(sizes(DualPipeV{}, -3, 8) == fault::size_out_of_range);
  CHECK(sizes(DualPipeV{}, 4097, 8) == fault::size_out_of_range);
  CHECK(sizes(DualPipeV{}, 2147483647, 8) == fault::size_out_of_range);
  CHECK(sizes(DualPipeV{}, 4, 1000001) == fault::size_out_of_range);
  CHECK(sizes(DualPipeV{}, 4, 2147483647) == fault::size_out_of_range);
  CHECK(sizes(Interleaved<>{}, 4, 8, -1) == fault::size_out_of_range);
  CHECK(sizes(Interleaved<>{}, 4, 8, 1025) == fault::size_out_of_range);
  CHECK(sizes(DualPipeV{}, 4, 6) == fault::too_few_microbatches);
  CHECK(sizes(OneFOneB{}, 4, 0) == fault::too_few_microbatches);
  CHECK(sizes(OneFOneB{}, 4, -2147483647 - 1) == fault::too_few_microbatches);
  CHECK(sizes(Even{}, 4, 7) == fault::not_a_multiple);
  CHECK(sizes(Even{}, 4, 6) == fault::none);
  CHECK(sizes(DualPipeV{}, 4, 8, 3) == fault::unserved_chunks);
  CHECK(sizes(DualPipeV{}, 4, 8, 1) == fault::unserved_chunks);
  CHECK(sizes(Interleaved<>{}, 4, 8, 65) == fault::unserved_chunks);
  CHECK(sizes(Interleaved<>{}, 4, 8, 64) == fault::none);
  CHECK(sizes(DualPipeV{}, 4096, 1000000) == fault::plan_too_large);
  CHECK_THROWS_AS(proved_plan<DualPipeV>(4096, 1000000), std::invalid_argument);
}

TEST_CASE("plans that break a rule are named with rank, call, stage and microbatch", "[pipelines-19]") {
  plan_facts const whole = facts(1, 2, false, false), split = facts(1, 2, false, true),
                   paired = facts(1, 2, true, false);
  call const f0 = call::forward(0, 0), f1 = call::forward(0, 1), b0 = call::backward(0, 0),
             b1 = call::backward(0, 1);
  call const i0 = call::backward_input(0, 0), w0 = call::backward_weight(0, 0);

  CHECK(told(whole, verdict(whole, {{f0, b0, f1, b1}})) == fault::none);
  CHECK(told(whole, verdict(whole, {{f0, b0, call::forward(0, 2), b1}})) == fault::no_such_place);
  CHECK(told(whole, verdict(whole, {{f0, b0, f1, call::backward(1, 1)}})) == fault::no_such_place);
  CHECK(told(whole, verdict(whole, {{f0, b0, f1, call::backward(-1, 1)}})) == fault::no_such_place);
  CHECK(told(whole, verdict(whole, {{f0, b0, f1}})) == fault::missing);
  CHECK(told(split, verdict(split, {{f0, i0, f1, b1}})) == fault::missing);
  CHECK(told(whole, verdict(whole, {{f0, b0, f1, f1, b1}})) == fault::doubled);
  CHECK(told(split, verdict(split, {{f0, b0, w0, f1, b1}})) == fault::doubled);
  CHECK(told(whole, verdict(whole, {{f0, call::pair(0, 1, 0, 0), b1}})) == fault::undeclared_form);
  CHECK(told(whole, verdict(whole, {{f0, i0, w0, f1, b1}})) == fault::undeclared_form);
  CHECK(told(paired, verdict(paired, {{f0, call::pair(0, 1, 0, 0), b1}})) == fault::none);
  CHECK(told(paired, verdict(paired, {{f0, b0, call::pair(0, 1, 0, 1)}})) == fault::dependent_pair);
  CHECK(told(whole, verdict(whole, {{b0, f0, f1, b1}})) == fault::too_early);
  CHECK(told(split, verdict(split, {{f0, w0, i0, f1, b1}})) == fault::too_early);
  CHECK(told(whole, verdict(whole, {{f0, f1, b1, b0}})) == fault::weight_order);
  CHECK(told(whole, verdict(whole, {{f0, f1, b0, b1}}, 1)) == fault::too_many_live);
  CHECK(told(whole, verdict(whole, {{f0, f1, b0, b1}}, 2)) == fault::none);

  auto const early = verdict(split, {{f0, w0, i0, f1, b1}});
  CHECK((early.rank == 0 && early.at == 1 && early.pass == plan_pass::weight && early.stage == 0 &&
         early.microbatch == 0));
}

TEST_CASE("a circle of waits between ranks is found") {
  plan_facts const two = facts(2, 2, true, false);
  call const f0 = call::forward(0, 0), f1 = call::forward(0, 1), b0 = call::backward(0, 0),
             b1 = call::backward(0, 1);
  // Rank 0 wants B0 before it sends F1; rank 1 wants F1 before it makes B0.
  CHECK(told(two, verdict(two, {{f0, b0, f1, b1}, {f0, f1, b0, b1}})) == fault::deadlock);
  // The pair on rank 1 needs F1, which rank 0 makes only beside B0.
  CHECK(told(two, verdict(two, {{f0, call::pair(0, 1, 0, 0), b1}, {f0, call::pair(0, 1, 0, 0), b1}})) ==
        fault::deadlock);
}

TEST_CASE("messages that break a rule are named with both ranks") {
  plan const made = lay_out<OneFOneB>(facts_of<OneFOneB>(2, 3));
  auto const lowered = oracle::steps_of(2, lower_messages(made));
  auto const with = [&](auto&& change) {
    auto steps = lowered;
    change(steps);
    return told(made.facts(), check_messages(made, oracle::pack(steps)));
  };
  auto const find = [&](std::size_t rank, step_kind what) {
    return std::find_if(lowered[rank].begin(), lowered[rank].end(),
                        [&](plan_step const& one) { return one.what == what; }) -
           lowered[rank].begin();
  };
  long const send = find(0, step_kind::send), receive = find(1, step_kind::receive);
  CHECK(with([](auto&) {}) == fault::none);
  CHECK(with([&](auto& steps) { steps[0].erase(steps[0].begin() + send); }) == fault::unmatched_message);
  CHECK(with([&](auto& steps) { steps[1].erase(steps[1].begin() + receive); }) == fault::unmatched_message);
  CHECK(with([&](auto& steps) {
          steps[0].insert(steps[0].begin() + send, steps[0][static_cast<std::size_t>(send)]);
        }) == fault::unmatched_message);
  CHECK(with([&](auto& steps) {
          steps[1].insert(steps[1].begin() + receive, steps[1][static_cast<std::size_t>(receive)]);
        }) == fault::unmatched_message);
  CHECK(with([&](auto& steps) { std::swap(steps[0][0], steps[0][1]); }) == fault::misplaced_message);
  CHECK(with([&](auto& steps) { std::swap(steps[1][0], steps[1][1]); }) == fault::misplaced_message);
  CHECK(with([&](auto& steps) { steps[1].pop_back(); }) != fault::none);
  CHECK(with([&](auto& steps) {
          // The last receive of rank 1 in front of its first: both in time, in another order than rank 0 sends.
          auto& one = steps[1];
          auto const last = std::find_if(one.rbegin(), one.rend(), [](plan_step const& step) {
            return step.what == step_kind::receive;
          });
          plan_step const moved = *last;
          one.erase(std::next(last).base());
          one.insert(one.begin(), moved);
        }) == fault::message_order);
}

TEST_CASE("a circle of messages that no pair of ranks sees is found") {
  // Three ranks hand an activation round and every one sends before it receives: each pair agrees on its one message.
  plan_facts const ring = facts(3, 3, false, false, 2);
  plan const made = lay_out<Interleaved<>>(ring);
  auto steps = oracle::steps_of(3, lower_messages(made));
  bool found = false;
  for (std::size_t rank = 0; rank < 3; ++rank) {
    for (std::size_t at = 0; at + 1 < steps[rank].size(); ++at) {
      plan_step& first = steps[rank][at];
      plan_step& second = steps[rank][at + 1];
      if (first.what != step_kind::receive || second.what != step_kind::send || first.peer == second.peer)
        continue;
      std::swap(first, second);
      found = found || check_messages(made, oracle::pack(steps)).what == fault::message_deadlock;
    }
  }
  CHECK(found);
  auto const wrong = check_messages(made, oracle::pack(steps));
  CHECK(told(ring, wrong) == fault::message_deadlock);
}

TEST_CASE("ranks of one expert group and policies that do not fit are refused in words") {
  plan const eight = lay_out<DualPipeV>(facts_of<DualPipeV>(4, 8)),
             ten = lay_out<DualPipeV>(facts_of<DualPipeV>(4, 10));
  CHECK(told(eight.facts(), check_expert_group(eight, 1, ten, 1)) == fault::group_order);
  CHECK(told(eight.facts(), check_expert_group(eight, 1, eight, 1)) == fault::none);
  policy_needs const serial = layer_policies[0], autograd = layer_policies[3];
  CHECK(told(eight.facts(), check_policy(serial, eight.facts(), false)) == fault::cannot_split);
  CHECK(told(eight.facts(), check_policy(autograd, eight.facts(), true)) == fault::cannot_split);
  CHECK(told(eight.facts(), check_policy(serial, eight.facts(), true)) == fault::none);
}

TEST_CASE("a user's list of pipelines takes the user's own along") {
  using mine = pipeline_list<DualPipeV, Even>;
  int microbatches = 0;
  CHECK(mine::with("even", [&]<class Pipeline>() { microbatches = microbatch_multiple<Pipeline>(4); }));
  CHECK(microbatches == 2);
  CHECK(!mine::with("odd", []<class Pipeline>() {}));
  std::set<std::string> names(std::begin(shipped_pipelines::names), std::end(shipped_pipelines::names));
  CHECK(names == std::set<std::string>{"serial", "gpipe", "one_f_one_b", "one_f_one_b_ep", "interleaved",
                                       "interleaved_ep", "zero_bubble_h1", "zero_bubble_v", "dual_pipe_v"});
}
