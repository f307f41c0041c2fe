#include "sim/matrix.hpp"
#include "sim/model.hpp"
#include "sim/mutate.hpp"

#include <stretto/pipelines/all.hpp>
#include <stretto/plan/error.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>

using namespace sim_test;
using sim::transport, sim::trouble;

namespace {

model_values const& model() {
  static model_values const of = values_of<Model>();
  return of;
}
/// Layers of every kind, of another number on every stage, and a stage without any.
std::vector<int> types_of(int stage, int stages, numbers& random) {
  std::vector<int> types;
  int const inner = stages > 2 && stage % 4 == 2 ? 0 : random.below(3);
  for (int i = 0; i < inner; ++i) types.push_back(random.below(4));
  if (stage == 0) types.insert(types.begin(), embedding);
  if (stage == stages - 1) types.push_back(head);
  return types;
}

/// One rank of a step with what it gives when nothing is wrong with it.
struct one_rank {
  int rank;
  rank_step whole;
  sim::program of;
  numbered_values values;
};

class table_mutants {
public:
  table_mutants(matrix& into, char const* pipeline, char const* policy, numbers& random)
      : into_(into), pipeline_(pipeline), policy_(policy), random_(random) {}

  /// `lower(model)` makes the step for blocks that may have changed.
  void mutate(std::function<step(model_values const&)> const& lower) {
    lower_ = &lower;
    step const of = lower(model());
    sim::program const all = program_of(of, model());
    REQUIRE_FALSE((of.problem || of.unproved));
    std::vector<one_rank> ranks;
    for (int rank = 0; rank < static_cast<int>(of.ranks.size()); ++rank) {
      one_rank one{rank, of.ranks[static_cast<std::size_t>(rank)], alone(all, rank), {}};
      // What nobody has changed is refused by neither.
      diagnosis const refused = refusal_of(one.whole);
      sim::machine machine(one.of, transport::any_time);
      one.values = machine.run().values;
      sim::finding const found = attack(machine, one.values, {.most_rows = 20, .most_orders = 0});
      if (refused || found)
        FAIL(pipeline_ << ", rank " << rank << ": nothing is wrong with it, but the checker says "
                       << (refused ? rule_of(refused.what).name : "nothing") << " and the simulator "
                       << name_of(found.wrong.what));
      count_waits(one.whole);
      if (rows_of(one.whole) > 1) ranks.push_back(std::move(one));
    }
    for (int i = 0; i < (tries_all ? 20 : 2) && !ranks.empty(); ++i) {
      one_rank& at = ranks[static_cast<std::size_t>(random_.below(static_cast<int>(ranks.size())))];
      waits(at), releases(at), aliases(at), weights(at), neighbours(at), bridges(at);
    }
  }

private:
  one_rank relowered(model_values const& changed, int rank) const {
    step const of = (*lower_)(changed);
    REQUIRE_FALSE((of.problem || of.unproved));
    one_rank made{rank, of.ranks[static_cast<std::size_t>(rank)], alone(program_of(of, changed), rank), {}};
    made.values = sim::machine(made.of, transport::any_time).run().values;
    return made;
  }

  void count_waits(rank_step one) {
    long all = 0, implied = 0;
    for (int row = 0; row < rows_of(one); ++row)
      for (int& wait : row_of(one, row).wait) {
        if (wait < 0) continue;
        int const w = std::exchange(wait, -1);
        ++all, implied += comes_before(one, w, row);
        wait = w;
      }
    into_.count_waits(all, implied);
  }

  int any_row(one_rank const& at, auto&& fits) {
    int const count = rows_of(at.whole), from = random_.below(count);
    for (int k = 0; k < count; ++k)
      if (int const row = (from + k) % count; fits(row_of(at.whole, row))) return row;
    return -1;
  }

  verdict judge(one_rank const& at, rank_step const& mutant, std::vector<int> const& rows,
                one_rank const* meant = nullptr) {
    sim::program of = meant != nullptr ? meant->of : at.of;
    set_rows(of.ranks[0], mutant);
    sim::machine machine(of, transport::any_time);
    sim::adversary by{.most_rows = 40, .most_orders = 0, .seed = 3, .suspects = {}};
    for (int row : rows)
      if (row >= 0 && row < rows_of(mutant)) by.suspects.push_back(machine.task_of(0, row));
    sim::finding const found = attack(machine, meant != nullptr ? meant->values : at.values, by);
    return {refusal_of(mutant).what, found.wrong.what};
  }
  void enter(char const* kind, verdict const& v, bool equivalent = false, bool reason = false) {
    into_.enter(kind, policy_, pipeline_, v, equivalent, reason);
  }

  void waits(one_rank const& at) {
    int const row = any_row(at, [](op const& o) {
      return std::any_of(o.wait, o.wait + lane_count, [](int w) { return w >= 0; });
    });
    if (row < 0) return;
    for (int l = 0; l < lane_count; ++l) {
      int const w = row_of(at.whole, row).wait[l];
      if (w < 0) continue;
      rank_step mutant = at.whole;
      row_of(mutant, row).wait[l] = -1;
      enter("drop a wait", judge(at, mutant, {row, w}), comes_before(mutant, w, row),
            is_strictly_refused(mutant));
    }
  }
  static int written(rank_step const& of, release const& r) {
    int row = r.before ? r.row - 1 : r.row;
    while (row > 0) {
      op const& o = row_of(of, row);
      cell_set const cell = cells::one(r.cell);
      if ((o.group == r.group && (o.touches.writes & cell) != 0) ||
          (o.next_group == r.group && (o.touches.next_writes & cell) != 0))
        break;
      --row;
    }
    return row;
  }
  void releases(one_rank const& at) {
    int const count = static_cast<int>(at.whole.releases.size());
    if (count == 0) return;
    std::size_t const k = static_cast<std::size_t>(random_.below(count));
    release const r = at.whole.releases[k];
    if (r.row >= rows_of(at.whole)) return;
    // Before the value is written there is nothing to give back: that would be a release that is lost.
    release early = r;
    if (int const write = written(at.whole, r);
        move_up(at.whole, early) && early.row >= write + early.before) {
      rank_step mutant = at.whole;
      mutant.releases[k] = early;
      enter("release one place early", judge(at, mutant, {early.row, r.row}));
    }
    lane const on = row_of(at.whole, r.row).on, other = on == lane::compute ? lane::comm : lane::compute;
    if (int const there = next_on_lane(at.whole, r.row, other); there >= 0) {
      rank_step mutant = at.whole;
      mutant.releases[k] = {there, r.group, r.cell};
      enter("release on another lane", judge(at, mutant, {there, r.row, next_on_lane(at.whole, there, on)}),
            false, true);
    }
  }
  /// Storage goes back under the name that a phase hands it on by.
  void aliases(one_rank const& at) {
    int const row = any_row(at, [](op const& o) { return (o.touches.aliases & ~cells::chain_values) != 0; });
    if (row < 0) return;
    op const& o = row_of(at.whole, row);
    rank_step mutant = at.whole;
    mutant.releases.push_back({row, o.group, std::countr_zero(o.touches.aliases & ~cells::chain_values)});
    enter("give back an alias", judge(at, mutant, {row}));
  }
  void weights(one_rank const& at) {
    int const row =
        any_row(at, [](op const& o) { return !o.is_message() && o.what == pass::backward_weight; });
    if (row < 0) return;
    rank_step dropped = at.whole, doubled = at.whole, hoisted = at.whole;
    erase_row(dropped, row);
    enter("drop a W", judge(at, dropped, {}));
    double_row(doubled, row);
    enter("double a W", judge(at, doubled, {row, row + 1}));
    int const input = find_pass(at.whole, row_of(at.whole, row), pass::backward_input);
    move_row(hoisted, row, input);
    enter("hoist a W above its I", judge(at, hoisted, {input}));
  }
  void neighbours(one_rank const& at) {
    // Messages are looked at with both ends.
    int const row = any_row(at, [](op const& o) { return !o.is_message(); });
    if (row < 0) return;
    int const next = next_on_lane(at.whole, row, row_of(at.whole, row).on);
    if (next < 0) return;
    rank_step mutant = at.whole;
    move_row(mutant, next, row);
    verdict const found = judge(at, mutant, {row, row + 1});
    enter("swap neighbours of a lane", found, false, is_strictly_refused(mutant));
  }
  /// A value that skips a node gets another reader, or its reader another value; the program still waits for the old one.
  void bridges(one_rank const& at) {
    int const row = any_row(at, [](op const& o) { return !o.is_message() && o.is_forward(); });
    if (row < 0) return;
    int const block = row_of(at.whole, row).block;
    block_facts f = model().blocks[static_cast<std::size_t>(block)];
    std::vector<int> leaves;
    for (int r = 0; r < f.leaves; ++r)
      if (int const v = f.leaf_root[r];
          v >= 0 && f.node_of[f.leaf_phase[r]] > f.node_of[f.root_writer[v]] + 1)
        leaves.push_back(r);
    if (leaves.empty()) return;
    int const leaf = leaves[static_cast<std::size_t>(random_.below(static_cast<int>(leaves.size())))],
              root = f.leaf_root[leaf];
    bool const moves = random_.below(2) == 0;
    if (moves) {
      f.leaf_phase[leaf] = f.root_writer[root] + 1 + random_.below(f.phases - f.root_writer[root] - 1);
    } else {
      int const other = random_.below(f.roots);
      if (f.root_writer[other] >= f.leaf_phase[leaf] || f.root_is_metadata[other] != f.root_is_metadata[root])
        return;
      f.leaf_root[leaf] = other;
    }
    if (f.node_of[f.leaf_phase[leaf]] == f.node_of[f.root_writer[f.leaf_root[leaf]]]) return;
    // What it should give now: that of a program made for it.
    model_values changed = model();
    changed.blocks[static_cast<std::size_t>(block)] = f;
    one_rank meant = relowered(changed, at.rank);
    rank_step mutant = at.whole;
    std::vector<int> rows;
    for (int i = 0; i < rows_of(mutant); ++i) {
      op& o = row_of(mutant, i);
      if (o.is_message() || o.block != block) continue;
      auto const accesses = [&](block_facts const& facts) {
        return access_of(facts, model().chain, o.node, o.what);
      };
      cell_set const taken =
          accesses(model().blocks[static_cast<std::size_t>(block)]).reads & ~o.touches.reads;
      o.touches = accesses(f);
      o.touches.reads &= ~taken;
      // The gradient of another reader belongs to another lane; that is a mutation of its own.
      auto const moved = [&](release const& r) {
        return moves && r.group == o.group && r.cell == cells::first_leaf_gradient + leaf;
      };
      mutant.releases.shrink(std::remove_if(mutant.releases.begin(), mutant.releases.end(), moved) -
                             mutant.releases.begin());
      if (o.node == f.node_of[f.leaf_phase[leaf]]) rows.push_back(i);
    }
    rows.resize((std::min)(rows.size(), std::size_t{6}));
    enter("redirect a bridge", judge(at, mutant, rows, &meant));
  }

  matrix& into_;
  std::function<step(model_values const&)> const* lower_ = nullptr;
  char const *pipeline_, *policy_;
  numbers& random_;
};

} // namespace

void sim_test::mutate_tables(matrix& all) {
  numbers random(11);
  for (policy_values const& policy : shipped_policies())
    shipped_pipelines::each([&]<class Pipeline>() {
      for (int ranks = 1; ranks <= (tries_all ? 4 : 2); ++ranks)
        for (int const microbatches : {Pipeline::min_microbatches(ranks), 4, 7, 10}) {
          if (microbatches < Pipeline::min_microbatches(ranks) || (!tries_all && microbatches > 4)) continue;
          int const stages = facts_of<Pipeline>(ranks, microbatches).stages();
          std::vector<std::vector<int>> types;
          for (int stage = 0; stage < stages; ++stage) types.push_back(types_of(stage, stages, random));
          table_mutants(all, Pipeline::name, policy.name, random).mutate([&](model_values const& blocks) {
            return lower_values(proved_plan<Pipeline>(ranks, microbatches), blocks, policy,
                                [&types](int stage) { return types[static_cast<std::size_t>(stage)]; });
          });
        }
    });
}
