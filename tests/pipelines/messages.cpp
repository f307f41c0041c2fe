#include "oracle.hpp"

#include "support/sanitized.hpp"

#include <stretto/check/messages.hpp>
#include <stretto/pipelines/all.hpp>
#include <stretto/plan/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <set>

using namespace stretto;

namespace {

template <class Pipeline> constexpr bool lowers(int ranks, int microbatches) {
  plan const made = lay_out<Pipeline>(facts_of<Pipeline>(ranks, microbatches));
  return !check_messages(made, lower_messages(made));
}
static_assert(lowers<DualPipeV>(2, 4) && lowers<InterleavedOverlapped<>>(2, 4) && lowers<OneFOneB>(3, 4));

void each_plan(int most_ranks, int most_microbatches, auto&& act) {
  shipped_pipelines::each([&]<class Pipeline>() {
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
      for (int microbatches = Pipeline::min_microbatches(ranks); microbatches <= most_microbatches;
           ++microbatches) {
        plan const made = lay_out<Pipeline>(facts_of<Pipeline>(ranks, microbatches));
        INFO(Pipeline::name << ' ' << ranks << ' ' << microbatches);
        act(made);
      }
    }
  });
}

} // namespace

TEST_CASE("lowered lists are matched, mirrored, and end under rendezvous and buffered sends",
          "[megatron-30][pipelines-03][pipelines-04][building-blocks-10]") {
  each_plan(is_sanitized ? 6 : 8, is_sanitized ? 14 : 24, [](plan const& made) {
    plan_steps const steps = lower_messages(made);
    auto const wrong = check_messages(made, steps);
    if (wrong) FAIL(sentence(made.facts(), wrong));
    auto const lists = oracle::lists_of(made);
    auto const copied = oracle::steps_of(made.facts().ranks, steps);
    REQUIRE(oracle::mirrored(copied));
    REQUIRE(oracle::messages_run(lists, copied, true));
    REQUIRE(oracle::messages_run(lists, copied, false));
    REQUIRE(!replay_messages(made.facts(), steps, send_semantics::buffered));
  });
}

TEST_CASE("the library's own proof of messages holds up to 16 ranks and 64 microbatches") {
  each_plan(is_sanitized ? 7 : 16, is_sanitized ? 20 : 64, [](plan const& made) {
    auto const wrong = check_messages(made, lower_messages(made));
    if (wrong) FAIL(sentence(made.facts(), wrong));
  });
}

TEST_CASE("every output that another rank reads is one message, and no other is") {
  each_plan(6, 14, [](plan const& made) {
    plan_facts const& facts = made.facts();
    std::set<oracle::key> wanted, sent, received;
    for (int stage = 0; stage < facts.stages(); ++stage) {
      for (int m = 0; m < facts.microbatches; ++m) {
        if (stage + 1 < facts.stages() && facts.owner(stage) != facts.owner(stage + 1))
          wanted.insert({0, stage, m});
        if (stage > 0 && facts.owner(stage) != facts.owner(stage - 1)) wanted.insert({1, stage, m});
      }
    }
    std::size_t ends = 0;
    for (auto const& rank : oracle::steps_of(facts.ranks, lower_messages(made))) {
      for (plan_step const& step : rank) {
        if (step.what == step_kind::send) sent.insert(oracle::key_of(step));
        if (step.what == step_kind::receive) received.insert(oracle::key_of(step));
        ends += step.what == step_kind::run ? 0 : 1;
      }
    }
    REQUIRE(sent == wanted);
    REQUIRE(received == wanted);
    REQUIRE(ends == 2 * wanted.size());
  });
}

TEST_CASE("a receive stands before a send only if its message is ready before it",
          "[pipelines-05][building-blocks-10]") {
  each_plan(is_sanitized ? 6 : 8, is_sanitized ? 14 : 20, [](plan const& made) {
    plan_facts const& facts = made.facts();
    auto const times = replay<int>(made, [](call const& one) { return unit_duration(one); });
    std::vector<int> ready(static_cast<std::size_t>(2 * facts.cells()));
    for (int rank = 0; rank < facts.ranks; ++rank) {
      for (long at = 0; at < made.size(rank); ++at) {
        for (detail::plan_message const& one : detail::sent_by(facts, rank, made.calls(rank)[at])) {
          ready[static_cast<std::size_t>(detail::message_cell(
              facts, one.carries, one.stage, one.microbatch))] = times.finish[made.first(rank) + at];
        }
      }
    }
    for (auto const& rank : oracle::steps_of(facts.ranks, lower_messages(made))) {
      int latest = 0;
      for (plan_step const& step : rank) {
        if (step.what == step_kind::run) continue;
        int const now = ready[static_cast<std::size_t>(
            detail::message_cell(facts, step.carries, step.stage, step.number))];
        REQUIRE(now >= latest);
        latest = now;
      }
    }
  });
}

TEST_CASE("placing every receive right before its reader would deadlock without buffers", "[pipelines-04]") {
  // The reason for the order of messages, shown on the plainest pipeline: both ranks send first.
  plan const made = lay_out<OneFOneB>(facts_of<OneFOneB>(2, 4));
  auto steps = oracle::steps_of(2, lower_messages(made));
  for (auto& rank : steps) {
    for (std::size_t i = rank.size(); i-- > 0;) {
      // Late receives: behind the sends that follow them, as far as the next call.
      for (std::size_t j = i;
           j + 1 < rank.size() && rank[j].what == step_kind::receive && rank[j + 1].what == step_kind::send;
           ++j) {
        std::swap(rank[j], rank[j + 1]);
      }
    }
  }
  auto const wrong = check_messages(made, oracle::pack(steps));
  CHECK((wrong.what == fault::message_order || wrong.what == fault::message_deadlock));
  CHECK(replay_messages(made.facts(), oracle::pack(steps), send_semantics::rendezvous).what ==
        fault::message_deadlock);
  CHECK(!replay_messages(made.facts(), oracle::pack(steps), send_semantics::buffered));
}

TEST_CASE("members of an expert group must issue the same calls", "[pipelines-01][pipelines-23]") {
  plan const eight = lay_out<DualPipeV>(facts_of<DualPipeV>(4, 8)),
             ten = lay_out<DualPipeV>(facts_of<DualPipeV>(4, 10));
  CHECK(!check_expert_group(eight, 2, eight, 2));
  CHECK(check_expert_group(eight, 2, ten, 2).what == fault::group_order);
  CHECK(check_expert_group(eight, 2, eight, 3).what == fault::group_order);
  plan const interleaved = lay_out<InterleavedOverlapped<>>(facts_of<InterleavedOverlapped<>>(4, 8));
  auto const wrong = check_expert_group(eight, 0, interleaved, 0);
  CHECK(wrong.what == fault::group_order);
  CHECK(wrong.at == 4);
}
