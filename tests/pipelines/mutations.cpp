#include "oracle.hpp"

#include <stretto/check_messages.hpp>
#include <stretto/pipelines/all.hpp>
#include <stretto/plan_error.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace stretto;

namespace {

void each_plan(int most_ranks, int most_microbatches, auto&& act) {
  shipped_pipelines::each([&]<class Pipeline>() {
    for (int ranks = 1; ranks <= most_ranks; ++ranks) {
      for (int microbatches = Pipeline::min_microbatches(ranks); microbatches <= most_microbatches;
           ++microbatches) {
        INFO(Pipeline::name << ' ' << ranks << ' ' << microbatches);
        act(lay_out<Pipeline>(facts_of<Pipeline>(ranks, microbatches)));
      }
    }
  });
}

/// The checks refuse exactly what the second opinion objects to; what they let through runs to the end with each pass
/// once, weight gradients ascending and no more live than promised.
bool refused(oracle::lists const& mutant) {
  bool const result = static_cast<bool>(check_plan(oracle::plan_of(mutant)));
  auto const objection = oracle::objection(mutant);
  if (result == objection.empty()) FAIL("the checks and the second opinion differ: " << objection);
  return result;
}

/// A legal mutant of calls must also lower into messages that pass: nothing about messages needs the shipped order.
void require_lowers(oracle::lists const& mutant) {
  plan const made = oracle::plan_of(mutant);
  auto const wrong = check_messages(made, lower_messages(made));
  if (wrong) FAIL(sentence(made.facts(), wrong));
}

bool refused(plan const& made, oracle::lists const& lists,
             std::vector<std::vector<plan_step>> const& mutant) {
  bool const result = static_cast<bool>(check_messages(made, oracle::pack(mutant)));
  // A rendezvous that ends cannot have lost, doubled or misplaced a message; the order of a pair is a rule of its own.
  bool const legal = oracle::mirrored(mutant) && oracle::messages_run(lists, mutant, true);
  if (result == legal) FAIL("the checks and the second opinion differ: " << result);
  return result;
}

} // namespace

TEST_CASE("dropping or doubling any call is refused") {
  long mutants = 0;
  each_plan(4, 10, [&](plan const& made) {
    auto const lists = oracle::lists_of(made);
    for (std::size_t rank = 0; rank < lists.ranks.size(); ++rank) {
      for (std::size_t at = 0; at < lists.ranks[rank].size(); ++at) {
        auto dropped = lists, doubled = lists;
        dropped.ranks[rank].erase(dropped.ranks[rank].begin() + static_cast<long>(at));
        doubled.ranks[rank].insert(doubled.ranks[rank].begin() + static_cast<long>(at),
                                   lists.ranks[rank][at]);
        if (!refused(dropped) || !refused(doubled)) FAIL("rank " << rank << ", call " << at);
        mutants += 2;
      }
    }
  });
  CHECK(mutants > 20000);
}

TEST_CASE("swapping neighbouring calls is refused, or legal for a reason") {
  long legal = 0, illegal = 0;
  each_plan(4, 10, [&](plan const& made) {
    auto lists = oracle::lists_of(made);
    for (auto& calls : lists.ranks) {
      for (std::size_t at = 0; at + 1 < calls.size(); ++at) {
        std::swap(calls[at], calls[at + 1]);
        if (refused(lists)) {
          ++illegal;
        } else {
          ++legal;
          require_lowers(lists);
        }
        std::swap(calls[at], calls[at + 1]);
      }
    }
  });
  CHECK(legal > 0);
  CHECK(illegal > 0);
}

TEST_CASE("swapping any two calls of a rank is refused, or legal for a reason") {
  each_plan(4, 5, [](plan const& made) {
    auto lists = oracle::lists_of(made);
    for (auto& calls : lists.ranks) {
      for (std::size_t i = 0; i < calls.size(); ++i) {
        for (std::size_t j = i + 2; j < calls.size(); ++j) {
          std::swap(calls[i], calls[j]);
          if (!refused(lists)) require_lowers(lists);
          std::swap(calls[i], calls[j]);
        }
      }
    }
  });
}

TEST_CASE("splitting a pair keeps a plan legal, and gluing an F to the B of its own microbatch does not") {
  each_plan(4, 10, [](plan const& made) {
    auto lists = oracle::lists_of(made);
    lists.facts.pairs = true;
    for (auto& calls : lists.ranks) {
      auto const before = calls;
      std::vector<call> apart;
      for (call const& one : before) {
        if (one.what == form::forward_backward) {
          apart.push_back(call::forward(one.forward_chunk, one.forward_microbatch));
          apart.push_back(call::backward(one.backward_chunk, one.backward_microbatch));
        } else {
          apart.push_back(one);
        }
      }
      calls = apart;
    }
    REQUIRE(!refused(lists));
    for (auto& calls : lists.ranks) {
      for (std::size_t at = 0; at + 1 < calls.size(); ++at) {
        call const first = calls[at], second = calls[at + 1];
        if (first.what != form::forward || second.what != form::backward ||
            first.forward_microbatch != second.backward_microbatch) {
          continue;
        }
        auto const before = calls;
        calls[at] = call::pair(first.forward_chunk, first.forward_microbatch, second.backward_chunk,
                               second.backward_microbatch);
        calls.erase(calls.begin() + static_cast<long>(at) + 1);
        REQUIRE(check_plan(oracle::plan_of(lists)).what == fault::dependent_pair);
        calls = before;
      }
    }
  });
}

TEST_CASE("dropping or doubling any end of a message is refused") {
  long mutants = 0;
  each_plan(4, 10, [&](plan const& made) {
    auto const lists = oracle::lists_of(made);
    auto const steps = oracle::steps_of(made.facts().ranks, lower_messages(made));
    for (std::size_t rank = 0; rank < steps.size(); ++rank) {
      for (std::size_t at = 0; at < steps[rank].size(); ++at) {
        if (steps[rank][at].what == step_kind::run) continue;
        auto dropped = steps, doubled = steps;
        dropped[rank].erase(dropped[rank].begin() + static_cast<long>(at));
        doubled[rank].insert(doubled[rank].begin() + static_cast<long>(at), steps[rank][at]);
        if (!refused(made, lists, dropped) || !refused(made, lists, doubled))
          FAIL("rank " << rank << ", step " << at);
        mutants += 2;
      }
    }
  });
  CHECK(mutants > 20000);
}

TEST_CASE("swapping neighbouring steps is refused, or legal for a reason") {
  long legal = 0, illegal = 0;
  each_plan(4, 10, [&](plan const& made) {
    auto const lists = oracle::lists_of(made);
    auto steps = oracle::steps_of(made.facts().ranks, lower_messages(made));
    for (auto& rank : steps) {
      for (std::size_t at = 0; at + 1 < rank.size(); ++at) {
        if (rank[at].what == step_kind::run && rank[at + 1].what == step_kind::run) continue;
        std::swap(rank[at], rank[at + 1]);
        ++(refused(made, lists, steps) ? illegal : legal);
        std::swap(rank[at], rank[at + 1]);
      }
    }
  });
  CHECK(legal > 0);
  CHECK(illegal > 0);
}

TEST_CASE("a message that names another microbatch, stage, kind or peer is refused") {
  each_plan(4, 7, [](plan const& made) {
    auto steps = oracle::steps_of(made.facts().ranks, lower_messages(made));
    for (auto& rank : steps) {
      for (plan_step& step : rank) {
        if (step.what == step_kind::run) continue;
        plan_step const before = step;
        auto const refused_as = [&](auto&& change) {
          change();
          bool const result = static_cast<bool>(check_messages(made, oracle::pack(steps)));
          step = before;
          return result;
        };
        REQUIRE(refused_as([&] { ++step.number; }));
        REQUIRE(refused_as([&] { --step.number; }));
        REQUIRE(refused_as([&] { ++step.stage; }));
        REQUIRE(refused_as([&] { step.stage = -1; }));
        REQUIRE(refused_as([&] { step.peer = static_cast<short>(step.peer + 1); }));
        REQUIRE(refused_as([&] {
          step.carries = step.carries == traffic::gradient ? traffic::activation : traffic::gradient;
        }));
        REQUIRE(refused_as(
            [&] { step.what = step.what == step_kind::send ? step_kind::receive : step_kind::send; }));
      }
    }
  });
}
