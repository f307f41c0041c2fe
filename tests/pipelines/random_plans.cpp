#include "oracle.hpp"

#include <stretto/check/messages.hpp>
#include <stretto/plan/error.hpp>
#include <stretto/simulate.hpp>

#include <catch2/catch_test_macros.hpp>

#include <random>

using namespace stretto;

namespace {

/// Makes legal plans nobody would write: as long as something is left to do, some rank takes any call that is ready.
class maker {
public:
  explicit maker(unsigned seed) : random_(seed) {
    auto const upto = [&](int most) { return std::uniform_int_distribution<int>(1, most)(random_); };
    placement const map = upto(2) == 1 ? placement::looped : placement::vee;
    facts_ = {"random", map, upto(5), upto(6), upto(3), upto(2) == 1, upto(2) == 1, 1, 8, 1, 1};
    made_ = {facts_, std::vector<std::vector<call>>(static_cast<std::size_t>(facts_.ranks)),
             std::vector<int>(static_cast<std::size_t>(facts_.ranks), -1)};
  }

  oracle::lists make() {
    oracle::finished done(facts_);
    for (;;) {
      std::vector<std::pair<int, call>> ready;
      for (int rank = 0; rank < facts_.ranks; ++rank) offer(rank, done, ready);
      if (ready.empty()) return made_;
      auto const& [rank, chosen] =
          ready[std::uniform_int_distribution<std::size_t>(0, ready.size() - 1)(random_)];
      for (auto const& one : oracle::actions_of(facts_, rank, chosen)) done[one] = 1;
      made_.ranks[static_cast<std::size_t>(rank)].push_back(chosen);
    }
  }

private:
  void offer(int rank, oracle::finished& done, std::vector<std::pair<int, call>>& ready) const {
    std::vector<call> forwards, backwards;
    for (int chunk = 0; chunk < facts_.chunks; ++chunk) {
      bool earlier_weights = true;
      for (int m = 0; m < facts_.microbatches; ++m) {
        int const stage = facts_.stage(rank, chunk);
        bool const did_forward = done[{'F', stage, m}] != 0, did_input = done[{'I', stage, m}] != 0,
                   did_weight = done[{'W', stage, m}] != 0;
        if (!did_forward && can({'F', stage, m}, done)) forwards.push_back(call::forward(chunk, m));
        if (!did_input && can({'I', stage, m}, done)) {
          if (facts_.splits) ready.emplace_back(rank, call::backward_input(chunk, m));
          if (earlier_weights) backwards.push_back(call::backward(chunk, m));
        }
        if (did_input && !did_weight && earlier_weights)
          ready.emplace_back(rank, call::backward_weight(chunk, m));
        earlier_weights = earlier_weights && did_weight;
      }
    }
    for (call const& f : forwards) {
      ready.emplace_back(rank, f);
      for (call const& b : backwards) {
        if (!facts_.pairs || f.forward_microbatch == b.backward_microbatch) continue;
        ready.emplace_back(
            rank, call::pair(f.forward_chunk, f.forward_microbatch, b.backward_chunk, b.backward_microbatch));
      }
    }
    for (call const& b : backwards) ready.emplace_back(rank, b);
  }
  bool can(oracle::action const& one, oracle::finished& done) const {
    for (auto const& need : oracle::needs_of(facts_, one)) {
      if (done[need] == 0) return false;
    }
    return true;
  }

  std::mt19937 random_;
  plan_facts facts_{};
  oracle::lists made_;
};

} // namespace

TEST_CASE("any legal plan passes, lowers into legal messages, and simulates") {
  int pairs = 0, vees = 0;
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    auto const lists = maker(seed).make();
    INFO("seed " << seed);
    REQUIRE(oracle::objection(lists).empty());
    plan const made = oracle::plan_of(lists);
    auto wrong = check_plan(made);
    if (wrong) FAIL(sentence(lists.facts, wrong));
    plan_steps const steps = lower_messages(made);
    wrong = check_messages(made, steps);
    if (wrong) FAIL(sentence(lists.facts, wrong));
    auto const copied = oracle::steps_of(lists.facts.ranks, steps);
    REQUIRE(oracle::mirrored(copied));
    REQUIRE(oracle::messages_run(lists, copied, true));
    REQUIRE(oracle::messages_run(lists, copied, false));
    REQUIRE(simulation(made, chunk_costs{}).ratio() >= 1);
    for (auto const& rank : lists.ranks) {
      pairs += static_cast<int>(std::count_if(
          rank.begin(), rank.end(), [](call const& one) { return one.what == form::forward_backward; }));
    }
    vees += lists.facts.map == placement::vee && lists.facts.chunks > 1 && lists.facts.ranks > 1 ? 1 : 0;
  }
  CHECK(pairs > 1000);
  CHECK(vees > 500);
}

TEST_CASE("any two calls of a legal plan swapped: the checks and the second opinion agree") {
  int refused = 0, legal = 0;
  std::mt19937 random(7);
  for (unsigned seed = 1; seed <= 3000; ++seed) {
    auto lists = maker(seed).make();
    auto& calls = lists.ranks[std::uniform_int_distribution<std::size_t>(0, lists.ranks.size() - 1)(random)];
    std::uniform_int_distribution<std::size_t> any(0, calls.size() - 1);
    std::swap(calls[any(random)], calls[any(random)]);
    bool const wrong = static_cast<bool>(check_plan(oracle::plan_of(lists)));
    INFO("seed " << seed << ": " << oracle::objection(lists));
    REQUIRE(wrong == !oracle::objection(lists).empty());
    ++(wrong ? refused : legal);
  }
  CHECK(refused > 300);
  CHECK(legal > 300);
}
