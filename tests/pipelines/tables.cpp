#include "lowered.hpp"

#include "support/sanitized.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <random>
#include <stdexcept>
#include <utility>

using namespace stretto;
using lowered::policy;

namespace {

/// Sizes around every threshold of the pipelines, or all up to 8 ranks and 32 microbatches.
void each_size(auto&& act) {
  for (int ranks = 1; ranks <= (is_sanitized ? 4 : 8); ++ranks) {
    std::vector<int> some = {
        1, ranks, ranks + 1, 2 * ranks - 1, 2 * ranks, 3 * ranks + 1, is_sanitized ? 1 : 32};
    for (int microbatches = 1; microbatches <= 32; ++microbatches) {
      bool const chosen =
          std::find(some.begin(), some.end(), microbatches) != some.end() && ranks != 5 && ranks != 7;
      if (chosen || lowered::tries_every_size()) act(ranks, microbatches);
    }
  }
}

/// Pairs of rows of which the first must have run before the second: neighbours among the uses of a cell that conflict.
/// What they order orders all others.
std::vector<std::pair<std::size_t, std::size_t>> conflicts_of(flat_table const& table) {
  std::vector<std::pair<std::size_t, std::size_t>> result;
  for (auto const& uses : lowered::uses_of(table)) {
    for (std::size_t j = 0; j < uses.size(); ++j) {
      bool const changes = uses[j].writes || uses[j].clears;
      for (std::size_t i = j; i-- > 0;) {
        bool const changed = uses[i].writes || uses[i].clears;
        if (changes || changed) result.emplace_back(uses[i].row, uses[j].row);
        if (changed) break;
      }
    }
  }
  return result;
}

bool all_ordered(lowered::before const& order,
                 std::vector<std::pair<std::size_t, std::size_t>> const& conflicts) {
  return std::all_of(conflicts.begin(), conflicts.end(), [&](auto const& one) {
    return one.first == one.second || order(one.first, one.second);
  });
}

/// Zero to six dense and MoE layers on every stage, between an embedding and a head.
lowered::stage_types random_layers(plan_facts const& facts, std::mt19937& random) {
  std::vector<std::vector<int>> types(static_cast<std::size_t>(facts.stages()));
  for (std::size_t stage = 0; stage < types.size(); ++stage) {
    types[stage].resize(random() % 7);
    for (int& type : types[stage]) type = random() % 3 == 0 ? lowered::dense : lowered::moe;
  }
  return lowered::with_ends(facts, [types](int stage) { return types[static_cast<std::size_t>(stage)]; });
}

/// Two layers on every stage, an embedding and a head among them, so that no pair is uneven.
lowered::stage_types even_layers(plan_facts const& facts) {
  int const last = facts.stages() - 1;
  return lowered::with_ends(facts, [last](int stage) {
    return std::vector<int>(last > 0 && (stage == 0 || stage == last) ? 1U : 2U, lowered::moe);
  });
}

struct tally {
  long tables = 0, mutants = 0, accepted = 0;
};

/// Deletes waits of every table, one at a time: the check objects exactly where a second opinion does.
void delete_waits(lowered::step const& of, std::mt19937& random, std::size_t most, tally& count) {
  for (flat_table table : of.tables) {
    auto const conflicts = conflicts_of(table);
    lowered::before order(table);
    REQUIRE_FALSE(table.check());
    REQUIRE(all_ordered(order, conflicts));
    std::vector<std::pair<std::size_t, std::size_t>> waits;
    for (std::size_t i = 0; i < table.ops.size(); ++i)
      for (std::size_t l = 0; l < lane_count; ++l)
        if (table.ops[i].wait[l] >= 0) waits.emplace_back(i, l);
    std::shuffle(waits.begin(), waits.end(), random);
    waits.resize(std::min(waits.size(), most));
    for (auto const& [row, lane] : waits) {
      int const kept = std::exchange(table.ops[row].wait[lane], -1);
      diagnosis const found = table.check();
      order.follow(table, row);
      bool const legal = all_ordered(order, conflicts);
      if (static_cast<bool>(found) == legal)
        FAIL("the check and the second opinion differ on wait " << kept << " of row " << row);
      if (found) REQUIRE(found.what == fault::race);
      count.accepted += legal;
      ++count.mutants;
      table.ops[row].wait[lane] = kept;
      order.follow(table, row);
    }
    ++count.tables;
  }
}

double unit_cost(int, op const&) { return 1; }

/// What the checks say of the tables of all ranks together.
bool objected(lowered::step const& of) {
  for (flat_table const& table : of.tables)
    if (table.check()) return true;
  if (!lowered::ends_agree(of)) return true;
  try {
    simulate_ops(of.all.facts(), of.tables, unit_cost);
  } catch (std::logic_error const&) {
    return true;
  }
  return false;
}

/// Takes row `row` out; waits for it become none, later rows move up.
void erase_row(flat_table& table, int row) {
  std::move(table.ops.begin() + row + 1, table.ops.end(), table.ops.begin() + row);
  table.ops.shrink(static_cast<long>(table.ops.size()) - 1);
  for (op& o : table.ops) {
    for (int& w : o.wait) {
      if (w == row)
        w = -1;
      else if (w > row)
        --w;
    }
  }
}

void swap_rows(flat_table& table, int row) {
  std::swap(table.ops[static_cast<std::size_t>(row)], table.ops[static_cast<std::size_t>(row) + 1]);
  for (op& o : table.ops) {
    for (int& w : o.wait) {
      if (w == row)
        w = row + 1;
      else if (w == row + 1)
        w = row;
    }
  }
}

} // namespace

TEST_CASE("pasted bodies wait for what the flat table says, no more and no less", "[tables]") {
  long tables = 0, waits = 0;
  each_size([&](int ranks, int microbatches) {
    lowered::each_pipeline(ranks, microbatches, [&](plan made) {
      plan_facts const facts = made.facts();
      int const layers = 1 + (ranks + microbatches) % 3;
      policy const how = microbatches % 4 == 1   ? policy::whole
                         : microbatches % 4 == 3 ? policy::serial
                                                 : policy::split;
      lowered::step const step = lowered::lower(std::move(made), how, lowered::only_moe(layers));
      for (flat_table const& table : step.tables) {
        flat_table derived;
        lowered::derived_waits(table, &derived);
        for (std::size_t i = 0; i < table.ops.size(); ++i) {
          if (!std::equal(table.ops[i].wait, table.ops[i].wait + lane_count, derived.ops[i].wait))
            FAIL(facts.name << ", " << ranks << " ranks, " << microbatches << " microbatches: row " << i);
        }
        ++tables, waits += table.waits();
      }
      if (!lowered::ends_agree(step))
        FAIL(facts.name << ": two ranks list their messages in different orders");
      // Every receive finds its send, whatever the ops cost.
      simulate_ops(facts, step.tables, unit_cost);
    });
  });
  CHECK(tables > (is_sanitized ? 300 : 1500));
  CHECK(waits > (is_sanitized ? 40000 : 500000));
}

TEST_CASE("any mix of dense and MoE layers gives legal tables, and hardly a wait too many", "[tables]") {
  std::mt19937 random(31);
  long pasted = 0, derived = 0, plans = 0;
  for (int round = 0; round < (lowered::tries_every_size() ? 40 : is_sanitized ? 1 : 2); ++round) {
    for (int ranks = 1; ranks <= (is_sanitized ? 4 : 5); ++ranks) {
      for (int const microbatches : {1, ranks, 2 * ranks - 1, 2 * ranks + 1, 4 * ranks}) {
        lowered::each_pipeline(ranks, microbatches, [&](plan made) {
          plan_facts const facts = made.facts();
          INFO(facts.name << ", " << ranks << " ranks, " << microbatches << " microbatches, round " << round);
          auto const types = random_layers(facts, random);
          lowered::step const step = lowered::lower(std::move(made), policy::split, types);
          for (flat_table const& table : step.tables) {
            REQUIRE_FALSE(table.check());
            pasted += table.waits(), derived += lowered::derived_waits(table);
          }
          simulate_ops(facts, step.tables, unit_cost);
          ++plans;
        });
      }
    }
  }
  CHECK(plans > (is_sanitized ? 100 : 300));
  CHECK(pasted >= derived);
  CHECK(static_cast<double>(pasted - derived) <= 0.02 * static_cast<double>(derived));
}

TEST_CASE("no wait of a table can be left out, but where a pair holds the head", "[tables]") {
  std::mt19937 random(5);
  tally count;
  for (int const ranks : {1, 2, 3, 4}) {
    for (int const microbatches : {2, 2 * ranks - 1, 2 * ranks + 1}) {
      lowered::each_pipeline(ranks, microbatches, [&](plan made) {
        plan_facts const facts = made.facts();
        INFO(facts.name << ", " << ranks << " ranks, " << microbatches << " microbatches");
        lowered::step const step = lowered::lower(std::move(made), policy::split, even_layers(facts));
        delete_waits(step, random, lowered::tries_every_size() ? 100000 : is_sanitized ? 5 : 25, count);
      });
    }
  }
  CHECK(count.mutants > (is_sanitized ? 1000 : 5000));
  // The body of a pair does not know what its neighbours have waited for: a head beside a MoE layer waits once too often.
  CHECK(count.accepted <= count.mutants / 50);
}

TEST_CASE("a wait of a mixed table is left out without harm only where another way orders the same",
          "[tables]") {
  std::mt19937 random(6);
  tally count;
  for (int const ranks : {2, 3}) {
    lowered::each_pipeline(ranks, 2 * ranks + 1, [&](plan made) {
      auto const types = random_layers(made.facts(), random);
      delete_waits(lowered::lower(std::move(made), policy::split, types), random, 40, count);
    });
  }
  CHECK(count.mutants > 800);
}

TEST_CASE("messages of one lane that change places, and a message that is not sent, are noticed",
          "[tables]") {
  long swapped = 0, dropped = 0;
  for (int ranks = 2; ranks <= (is_sanitized ? 3 : 4); ++ranks) {
    lowered::each_pipeline(ranks, 2 * ranks + 1, [&](plan made) {
      plan_facts const facts = made.facts();
      INFO(facts.name << ", " << ranks << " ranks");
      lowered::step step = lowered::lower(std::move(made), policy::split, even_layers(facts));
      REQUIRE_FALSE(objected(step));
      for (flat_table& table : step.tables) {
        flat_table const whole = table;
        int last = -1;
        for (int row = 0; row < static_cast<int>(whole.ops.size()); ++row) {
          op const& o = whole.ops[static_cast<std::size_t>(row)];
          if (!o.is_message()) continue;
          if (last == row - 1 && row > 0) {
            op const& other = whole.ops[static_cast<std::size_t>(last)];
            // Lanes are independent, and so are the peers of one lane.
            if (other.on == o.on && other.peer == o.peer) {
              swap_rows(table, last);
              if (!objected(step)) FAIL("rows " << last << " and " << row << " changed places");
              table = whole;
              ++swapped;
            }
          }
          last = row;
          erase_row(table, row);
          if (!objected(step)) FAIL("message " << row << " is gone");
          table = whole;
          ++dropped;
        }
      }
    });
  }
  CHECK(swapped > (is_sanitized ? 3 : 10));
  CHECK(dropped > (is_sanitized ? 300 : 1000));
}
