#include "lowered.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <random>

using namespace stretto;
using lowered::policy;

namespace {

/// From one write of a cell to the next: its users, the write that ends it (-1: none), and who gives it back.
struct instance {
  std::vector<std::size_t> users;
  long next_write = -1;
  lane owner = lane::compute;
  bool cleared = false; ///< an op does it itself
  bool passes = false; ///< only messages use it
};

/// The lives of a cell, from the definition: memory belongs to the lane that wrote it; what came in a message, to the lane of
/// the last op that reads it.
std::vector<instance> lives_of(flat_table const& table, std::vector<lowered::use> const& uses) {
  std::vector<instance> result;
  bool arrived = false;
  for (lowered::use const& one : uses) {
    op const& o = table.ops[one.row];
    if (!result.empty() && (one.reads || one.clears)) result.back().users.push_back(one.row);
    if (!result.empty() && one.clears) result.back().cleared = true;
    if (one.writes) {
      if (!result.empty()) result.back().next_write = static_cast<long>(one.row);
      result.push_back({});
      result.back().users.push_back(one.row);
      arrived = o.is_message();
      result.back().owner = o.on;
    } else if (arrived && !result.empty() && !o.is_message()) {
      result.back().owner = o.on;
    }
  }
  for (instance& life : result) life.passes = is_send(life.owner) || is_receive(life.owner);
  return result;
}

/// The only metadata of the layers: the fourth value that a MoE layer writes.
constexpr int routing = cells::first_root + 3;
constexpr std::size_t in_group = cells::count;

bool holds_tensor(int cell) { return cell < cells::first_boundary; }

/// Where storage can go back: before a row, behind its waits, or behind it. In the order of the rows.
struct point {
  long row;
  bool before;
  point next() const { return before ? point{row, false} : point{row + 1, true}; }
  point previous() const { return before ? point{row - 1, false} : point{row, true}; }
  friend auto operator<=>(point const& a, point const& b) {
    return 2 * a.row + !a.before <=> 2 * b.row + !b.before;
  }
  friend bool operator==(point const&, point const&) = default;
};

/// Whether storage may go back at a point, on its lane: whoever used it has finished by then.
bool sound(flat_table const& table, lowered::before const& before, instance const& life, point at) {
  auto const row = static_cast<std::size_t>(at.row);
  return table.ops[row].on == life.owner &&
         std::all_of(life.users.begin(), life.users.end(),
                     [&](std::size_t user) { return (user == row && !at.before) || before(user, row); });
}

struct counts {
  long before = 0, behind = 0, at_end = 0, cleared = 0, overwritten = 0;
};

void check_releases(lowered::step const& step, int rank, counts& count) {
  flat_table const& table = step.tables[static_cast<std::size_t>(rank)];
  auto const all = static_cast<long>(table.ops.size());
  lowered::before const before(table);
  auto const uses = lowered::uses_of(table);
  detail::sequence<release> const given = lowered::releases_of(step, rank);
  // The layer that keeps its values at each point of the chain; none at the ends.
  detail::chain_layout const layout(step.all.facts(), rank, step.shapes[static_cast<std::size_t>(rank)]);
  std::vector<int> types(static_cast<std::size_t>(layout.points()), -1);
  for (int l = 0; l < step.shapes[static_cast<std::size_t>(rank)].size(); ++l)
    types[static_cast<std::size_t>(layout.point(l))] = step.shapes[static_cast<std::size_t>(rank)][l].type;
  REQUIRE(std::is_sorted(given.begin(), given.end(), [](release const& a, release const& b) {
    return point{a.row, a.before} < point{b.row, b.before};
  }));
  std::vector<std::vector<point>> points(uses.size());
  for (release const& one : given) {
    REQUIRE(holds_tensor(one.cell));
    REQUIRE(
        (one.cell != routing || types[static_cast<std::size_t>(one.group) % types.size()] != lowered::moe));
    points[static_cast<std::size_t>(one.group) * in_group + static_cast<std::size_t>(one.cell)].push_back(
        {one.row, one.before});
  }
  for (std::size_t cell = 0; cell < static_cast<std::size_t>(table.groups) * in_group; ++cell) {
    if (!holds_tensor(static_cast<int>(cell % in_group))) continue;
    if (cell % in_group == routing && types[cell / in_group % types.size()] == lowered::moe) continue;
    std::size_t next = 0;
    std::vector<instance> const lives = lives_of(table, uses[cell]);
    for (instance const& life : lives) {
      INFO("cell " << cell % in_group << " of group " << cell / in_group << ", written in row "
                   << life.users.front());
      if (life.cleared) {
        ++count.cleared;
        continue;
      }
      // Before the op that writes the cell again at the latest.
      point const end = life.next_write < 0 ? point{all, true} : point{life.next_write, false};
      point earliest = end;
      if (!life.passes) {
        earliest = {static_cast<long>(life.users.back()), false};
        while (earliest < end && !sound(table, before, life, earliest)) earliest = earliest.next();
      }
      bool const here = next < points[cell].size() && points[cell][next] < end;
      if (earliest != end) {
        REQUIRE(here);
        point const at = points[cell][next++];
        REQUIRE(at == earliest);
        // Not one place earlier on its lane.
        point previous = at.previous();
        while (previous.row >= 0 && table.ops[static_cast<std::size_t>(previous.row)].on != life.owner)
          --previous.row;
        if (previous.row >= static_cast<long>(life.users.front()))
          REQUIRE_FALSE(sound(table, before, life, previous));
        ++(at.before ? count.before : count.behind);
      } else if (life.next_write < 0) {
        REQUIRE(next < points[cell].size());
        REQUIRE((points[cell][next++] == point{all, false}));
        ++count.at_end;
      } else {
        // Writing over it gives it back, and comes after every user.
        REQUIRE_FALSE(here);
        for (std::size_t const user : life.users) {
          auto const writer = static_cast<std::size_t>(life.next_write);
          REQUIRE((user == writer || before(user, writer)));
        }
        ++count.overwritten;
      }
    }
    REQUIRE(next == points[cell].size());
  }
}

} // namespace

TEST_CASE("storage goes back once, at the first op of its lane that comes after every reader", "[tables]") {
  std::mt19937 random(3);
  counts count;
  int const most = lowered::tries_every_size() ? 6 : 4;
  for (int ranks = 1; ranks <= most; ++ranks) {
    for (int const microbatches : {1, ranks + 1, 2 * ranks + 1}) {
      lowered::each_pipeline(ranks, microbatches, [&](plan made) {
        plan_facts const facts = made.facts();
        if (facts.chunks > 2 && !lowered::tries_every_size()) return;
        INFO(facts.name << ", " << ranks << " ranks, " << microbatches << " microbatches");
        auto const inner = [&random](int) {
          std::vector<int> types(1 + random() % 2, lowered::moe);
          if (random() % 3 == 0) types.back() = lowered::dense;
          return types;
        };
        lowered::step const step =
            lowered::lower(std::move(made), policy::split, lowered::with_ends(facts, inner));
        for (int rank = 0; rank < ranks; ++rank) check_releases(step, rank, count);
      });
    }
  }
  CHECK(count.before + count.behind > 20000);
  CHECK(count.before > 10000);
  CHECK(count.behind > 0);
  CHECK(count.at_end > 0);
  CHECK(count.cleared > 0);
}
