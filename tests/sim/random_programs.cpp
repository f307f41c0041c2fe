#include "sim/random_program.hpp"

#include <stretto/plan/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cstdio>
#include <cstdlib>
#include <sstream>

using namespace sim_test;
using sim::transport, sim::trouble;

namespace {

/// What the two say of a program; nothing if it has no table to look at.
struct opinion {
  bool has_table = false;
  fault refused = fault::none;
  trouble caught = trouble::none;
  bool may_be_strict = false;

  bool agree() const {
    return !has_table || (refused == fault::none) == (caught == trouble::none) ||
           (refused != fault::none && may_be_strict);
  }
};

trouble found_in(sim::program const& of, transport how, numbered_values const& expected,
                 sim::senses const& sees) {
  sim::machine machine(of, how, sees);
  return attack(machine, expected, {.most_rows = 60, .most_orders = 0}).wrong.what;
}
numbered_values issued(sim::program const& of, transport how, sim::senses const& sees) {
  return sim::machine(of, how, sees).run().values;
}

/// Losses and parameter gradients of the same layers one after the other, one microbatch after the other; empty where the
/// serial policy does not fit the blocks.
numbered_values in_series(random_program const& p) {
  std::vector<int> all;
  for (std::vector<int> const& stage : p.types) all.insert(all.end(), stage.begin(), stage.end());
  step const serial =
      lower_values(lay_out<SerialPipeline>(facts_of<SerialPipeline>(1, p.made->all.facts().microbatches)),
                   p.model, shipped_policies()[0], [&all](int) { return all; });
  if (serial.problem || serial.unproved) return {};
  return issued(program_of(serial, p.model), transport::named, {});
}
bool holds(numbered_values const& all, numbered_values const& some) {
  int at = 0;
  for (sim::final_value const& one : some) {
    while (at < all.size() && all[at].name < one.name) ++at;
    if (at == all.size() || all[at] != one) return false;
  }
  return true;
}

opinion judge(choices& by, sim::senses const& sees = {}) {
  random_program const p(by);
  opinion found;
  if (p.made->problem) return found;
  found.has_table = true;
  auto const ranks = static_cast<int>(p.made->ranks.size());
  for (int rank = 0; rank < ranks && found.refused == fault::none; ++rank)
    found.refused = refusal_of(p.made->ranks[static_cast<std::size_t>(rank)]).what;
  if (p.changed < 0) {
    for (int rank = 0; rank < ranks && found.caught == trouble::none; ++rank) {
      sim::program const one = alone(p.of, rank);
      found.caught = found_in(one, transport::any_time, issued(one, transport::any_time, sees), sees);
    }
    if (found.caught != trouble::none || p.made->unproved) return found;
    // All ranks together give what one layer after the other gives.
    numbered_values const values = issued(p.of, transport::rendezvous, sees);
    found.caught = found_in(p.of, transport::rendezvous, values, sees);
    if (found.caught == trouble::none && !holds(values, in_series(p))) found.caught = trouble::other_values;
    return found;
  }
  rank_step const& changed = p.made->ranks[static_cast<std::size_t>(p.changed)];
  sim::program one = alone(p.of, p.changed);
  sim::program const mutant = one;
  set_rows(one.ranks[0], p.whole);
  found.caught = found_in(mutant, transport::any_time, issued(one, transport::any_time, sees), sees);
  if (found.caught == trouble::none) found.may_be_strict = is_strictly_refused(changed);
  return found;
}

/// The smallest list of decisions that still disagrees: shorter first, then with smaller numbers.
template <class Fails> std::vector<int> shrink(std::vector<int> taken, Fails&& fails) {
  for (bool smaller = true; smaller;) {
    smaller = false;
    auto const keep = [&](std::vector<int> const& tried) {
      if (!fails(tried)) return false;
      taken = tried;
      return smaller = true;
    };
    for (std::size_t length = taken.size() / 2; length > 0; length /= 2)
      for (std::size_t at = 0; at + length <= taken.size();) {
        std::vector<int> tried = taken;
        tried.erase(tried.begin() + static_cast<std::ptrdiff_t>(at),
                    tried.begin() + static_cast<std::ptrdiff_t>(at + length));
        if (!keep(tried)) at += length;
      }
    for (std::size_t at = 0; at < taken.size(); ++at)
      for (int const value : {0, taken[at] / 2, taken[at] - 1}) {
        if (value < 0 || value >= taken[at]) continue;
        std::vector<int> tried = taken;
        tried[at] = value;
        if (keep(tried)) break;
      }
  }
  return taken;
}

std::string describe(std::vector<int> const& taken) {
  choices by(taken);
  random_program const p(by);
  std::ostringstream out;
  plan_facts const& facts = p.made->all.facts();
  out << p.pipeline << ", " << facts.ranks << " ranks, " << facts.microbatches << " microbatches"
      << (p.policy.splits ? ", I and W apart" : "") << "; change: " << p.change << "\nlayers:";
  for (std::vector<int> const& stage : p.types) {
    for (int type : stage) out << ' ' << type;
    out << " |";
  }
  for (std::size_t k = 0; k < p.model.blocks.size(); ++k) {
    block_facts const& f = p.model.blocks[k];
    out << "\nblock " << k << ":";
    for (int ph = 0; ph < f.phases; ++ph) {
      out << (ph > 0 && f.node_of[ph] != f.node_of[ph - 1] ? " | " : " ")
          << (f.recomputes[f.node_of[ph]] ? "again " : "") << name_of(f.kind[ph]) << '(';
      for (int r = 0; r < f.leaves; ++r)
        if (f.leaf_phase[r] == ph)
          out << (f.leaf_root[r] < 0 ? "in" : "v") << (f.leaf_root[r] < 0 ? f.leaf_input[r] : f.leaf_root[r])
              << (f.leaf_is_saved[r] ? "* " : " ");
      out << "->";
      for (int v = 0; v < f.roots; ++v)
        if (f.root_writer[v] == ph)
          out << " v" << v << (f.root_is_saved[v] ? "*" : "") << (f.root_is_metadata[v] ? "m" : "")
              << (f.root_is_output[v] ? "o" : "");
      for (int v = 0; v < f.roots; ++v)
        if (f.root_writer[v] == ph && f.root_alias[v] >= 0) out << " v" << v << "=r" << f.root_alias[v];
      out << ')';
    }
  }
  out << "\npolicy:";
  for (int i = 0; i < p.policy.order.size(); ++i) {
    request const& r = p.policy.order[i];
    out << ' ' << letter_of(r.what) << '.' << name_of(r.kind) << (r.on == lane::comm ? "~" : "");
  }
  for (std::size_t rank = 0; rank < p.made->ranks.size(); ++rank) {
    out << "\nrank " << rank << ":\n";
    rank_step const& at = p.made->ranks[rank];
    for (int i = 0; i < rows_of(at); ++i) {
      op const& o = row_of(at, i);
      out << i << ' ' << letter_of(o.what) << '.' << static_cast<int>(o.node) << " layer " << o.layer
          << " mb " << o.microbatch << " slot " << o.slot << " on " << name_of(o.on) << " waits";
      for (int w : o.wait)
        if (w >= 0) out << ' ' << w;
      for (release const& r : at.releases)
        if (r.row == i) out << ", gives back " << r.group << '.' << r.cell << (r.before ? " before" : "");
      out << '\n';
    }
    diagnosis const d = refusal_of(at);
    out << (d ? rule_of(d.what).name : "not refused") << " row " << d.at << " other " << d.other << " cell "
        << d.cell;
  }
  return out.str();
}

/// How many programs: 10^5, or as many as STRETTO_RANDOM_PROGRAMS says.
long programs_to_try() {
  if (char const* const asked = std::getenv("STRETTO_RANDOM_PROGRAMS")) return std::atol(asked);
  return tries_all ? 100'000 : 1'500;
}

} // namespace

TEST_CASE("the checker and the simulator agree on random programs", "[random]") {
  long with_table = 0, refused = 0, legal = 0, strict = 0;
  for (long i = 0; i < programs_to_try(); ++i) {
    choices by(static_cast<unsigned long long>(i) + 1);
    opinion const found = judge(by);
    if (!found.agree()) {
      auto const least = shrink(by.taken(), [](std::vector<int> const& taken) {
        choices again(taken);
        return !judge(again).agree();
      });
      choices again(least);
      opinion const small = judge(again);
      FAIL("program " << i << ": the checker says "
                      << (small.refused == fault::none ? "nothing" : rule_of(small.refused).name)
                      << ", the simulator " << name_of(small.caught) << "\n"
                      << describe(least));
    }
    if (!found.has_table) continue;
    ++with_table;
    refused += found.refused != fault::none, legal += found.refused == fault::none;
    strict += found.refused != fault::none && found.caught == trouble::none;
  }
  UNSCOPED_INFO(with_table << " programs with a table, " << refused << " refused, " << legal << " legal, "
                           << strict << " strict");
  std::printf("%ld programs with a table: %ld refused, %ld legal, %ld refused although no run goes wrong\n",
              with_table, refused, legal, strict);
  CHECK(refused > programs_to_try() / 10);
  CHECK(legal > programs_to_try() / 10);
  CHECK(strict * 20 < refused);
}

TEST_CASE("a disagreement shrinks to a small program", "[random]") {
  // A simulator that does not mind the order of sums: which program shows it first?
  sim::senses const blind{.poison = false};
  auto const fails = [&blind](std::vector<int> const& taken) {
    choices by(taken);
    return !judge(by, blind).agree();
  };
  for (unsigned long long seed = 1;; ++seed) {
    REQUIRE(seed < 20'000);
    choices by(seed);
    if (judge(by, blind).agree()) continue;
    auto const least = shrink(by.taken(), fails);
    CHECK(fails(least));
    CHECK(least.size() < by.taken().size());
    choices again(least);
    random_program const p(again);
    int rows = 0;
    for (rank_step const& rank : p.made->ranks) rows += rows_of(rank);
    CHECK(rows <= 30);
    break;
  }
}
