#pragma once

#include <stretto/adapters/sim/machine.hpp>

#include <random>

/// An adversary: runs a program in the orders in which it is likeliest to fail.
namespace stretto {
inline namespace v0 {
namespace sim {

/// How many runs an attack may take, and which ones.
struct adversary {
  /// Rows that are taken early, each in a run of its own; of more, so many are chosen at random.
  int most_rows = 200;
  int most_orders = 1000; ///< if there are no more, all of them are run
  unsigned seed = 1;
  numbered<int> suspects = {}; ///< tasks to begin with
};

/// What an attack found: the first run that went wrong, and how many there were.
struct finding {
  outcome wrong;
  int runs = 0;
  bool every_order = false;
  explicit operator bool() const { return wrong.what != trouble::none; }
};

/// Hands `passes` ways to order a program of `tasks` tasks (a graph gives its order) until it returns false: each of `lanes`
/// as far ahead of the others, and as far behind, as it can be; then each of up to `most_rows` tasks as early as it can be.
template <class Passes>
void against(numbered<int> const& lanes, int tasks, adversary const& how, Passes&& passes) {
  for (int l : lanes)
    if (!passes([l](graph const& all) { return all.ahead(l); }) ||
        !passes([l](graph const& all) { return all.behind(l); }))
      return;
  numbered<int> rows;
  for (int t = 0; t < tasks; ++t) rows.push_back(t);
  if (tasks > how.most_rows) {
    std::mt19937 random(how.seed);
    std::shuffle(rows.begin(), rows.end(), random);
  }
  for (int i = 0; i < tasks && i < how.most_rows; ++i)
    if (!passes([row = rows[i]](graph const& all) { return all.early(row); })) return;
}

/// Runs `of` in the order in which it was issued, then against it:
/// - every row before all that need not come before it: so any two rows that the program leaves unordered are run either way;
/// - each lane as far ahead of the others, and as far behind, as it can be;
/// - every order that there is, if they are few.
/// Whatever comes out other than `expected` is trouble.
inline finding attack(machine& of, numbered<final_value> const& expected, adversary const& how = {}) {
  finding found;
  auto const passes = [&](numbered<int> const& order) {
    ++found.runs;
    found.wrong = of.run(order);
    if (found.wrong.what == trouble::none && found.wrong.values != expected)
      found.wrong.what = trouble::other_values;
    return found.wrong.what == trouble::none;
  };
  graph const& all = of.graph();
  if (of.wiring().what != trouble::none || !passes(all.in_order())) {
    found.wrong.what = found.wrong.what == trouble::none ? of.wiring().what : found.wrong.what;
    return found;
  }
  for (int task : how.suspects)
    if (!passes(all.early(task)) || !passes(all.late(task))) return found;
  if (how.most_orders > 0 && all.each_order(how.most_orders, passes)) {
    found.every_order = true;
    return found;
  }
  if (found) return found;
  against(all.used_lanes(), all.size(), how, [&](auto const& order) { return passes(order(all)); });
  return found;
}

} // namespace sim
} // namespace v0
} // namespace stretto
