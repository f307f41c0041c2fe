// Bugs of other trainers as plans and tables of ours, checked on values and run by the simulator: each tag is a row of
// docs/public_bugs.md.
#include "lowered.hpp"

#include "../../examples/plan/layer_types.hpp"
#include "support/toy_rows.hpp"

#include <stretto/adapters/sim.hpp>
#include <stretto/pipelines/all.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <set>
#include <string>

using namespace stretto;
using lowered::policy, sim::transport, sim::trouble;
using Model = plan_program::MixedModel;
using releases = std::vector<detail::sequence<release>>; ///< by rank

namespace {

lowered::step lowered_step(plan made, int layers) {
  plan_facts const facts = made.facts();
  return lowered::lower(std::move(made), policy::split, lowered::with_ends(facts, lowered::only_moe(layers)));
}
releases releases_of(lowered::step const& of) {
  releases all;
  for (int rank = 0; rank < of.all.facts().ranks; ++rank) all.push_back(lowered::releases_of(of, rank));
  return all;
}

/// A step as the simulator runs it: `copies` pipelines side by side, whose ranks with one number are an expert group.
sim::program program_of(lowered::step const& of, releases const& freed, int copies = 1) {
  plan_facts const facts = of.all.facts();
  sim::program program;
  for (int k = 0; k < Model::count; ++k)
    program.blocks.push_back(*detail::facts_at<Model>(k, std::make_integer_sequence<int, Model::count>{}));
  program.chain = chain_of<Model>::value;
  for (int copy = 0; copy < copies; ++copy)
    for (int rank = 0; rank < facts.ranks; ++rank) {
      auto const at = static_cast<std::size_t>(rank);
      layer_shape const& shape = of.shapes[at];
      sim::rank_table table;
      for (op o : of.tables[at].ops) {
        if (o.is_message()) o.peer = static_cast<short>(o.peer + copy * facts.ranks);
        table.ops.push_back(o);
      }
      for (release const& r : freed[at]) table.gives_back.push_back({r.row, r.group, r.cell, r.before});
      for (int c = 0; c < shape.chunks(); ++c) {
        table.stage.push_back(facts.stage(rank, c) + copy * facts.stages());
        for (int l = shape.first(c); l < shape.first(c + 1); ++l)
          table.layer_id.push_back(1000 * table.stage[c] + l - shape.first(c));
      }
      program.ranks.push_back(table);
    }
  for (int rank = 0; copies > 1 && rank < facts.ranks; ++rank) {
    sim::numbered<int> group;
    for (int copy = 0; copy < copies; ++copy) group.push_back(rank + copy * facts.ranks);
    program.expert_groups.push_back(group);
  }
  return program;
}
trouble attacked(sim::program const& wrong, sim::program const& right, transport how = transport::buffered) {
  sim::outcome const expected = sim::machine(right, how).run();
  REQUIRE(expected.what == trouble::none);
  sim::machine machine(wrong, how);
  return sim::attack(machine, expected.values, {.most_rows = 1000, .most_orders = 0}).wrong.what;
}

template <class Value> int cell_of() {
  block_facts const& f = dataflow_of<plan_program::MoeLayer>::value;
  int v = 0;
  while (f.root[v] != detail::id_of<Value>()) ++v;
  return 8 + v;
}
bool writes(op const& o, release const& r) {
  return (o.group == r.group && (o.touches.writes & cells::one(r.cell)) != 0) ||
         (o.next_group == r.group && (o.touches.next_writes & cells::one(r.cell)) != 0);
}
bool reads(op const& o, release const& r) {
  return (o.group == r.group && (o.touches.reads & cells::one(r.cell)) != 0) ||
         (o.next_group == r.group && (o.touches.next_reads & cells::one(r.cell)) != 0);
}
/// The last row that comes before a release.
int row_before(flat_table const& table, release const& r) {
  return std::min(r.before ? r.row - 1 : r.row, static_cast<int>(table.ops.size()) - 1);
}
/// The row that wrote what a release gives back, and the last one on `on` that read it (-1: none).
int writer_of(flat_table const& table, release const& r) {
  int row = row_before(table, r);
  while (!writes(table.ops[static_cast<std::size_t>(row)], r)) --row;
  return row;
}
int last_reader_of(flat_table const& table, release const& r, lane on) {
  int const begin = writer_of(table, r);
  for (int row = row_before(table, r); row > begin; --row) {
    op const& o = table.ops[static_cast<std::size_t>(row)];
    if (o.on == on && reads(o, r)) return row;
  }
  return -1;
}

} // namespace

// --- Storage that several lanes use. ---------------------------------------------------------------------------------

TEST_CASE("bridges made on compute and read on comm go back behind their readers, on compute",
          "[megatron-04][megatron-07][building-blocks-02]") {
  lowered::step const step = lowered_step(proved_plan<OneFOneBOverlapped>(1, 3), 2);
  releases const planned = releases_of(step);
  sim::program const right = program_of(step, planned);
  CHECK(attacked(right, right) == trouble::none);

  flat_table const& table = step.tables[0];
  std::set<int> const bridges = {cell_of<plan_program::probs>(), cell_of<plan_program::residual>()};
  int early = 0, elsewhere = 0;
  for (std::size_t i = 0; i < planned[0].size(); ++i) {
    release const& r = planned[0][i];
    if (!bridges.contains(r.cell)) continue;
    REQUIRE(table.ops[static_cast<std::size_t>(writer_of(table, r))].on == lane::compute);
    CAPTURE(r.row, r.group, r.cell);
    auto const is_caught = [&](int row) {
      releases moved = planned;
      moved[0][i].row = row, moved[0][i].before = false;
      trouble const found = attacked(program_of(step, moved), right);
      return found == trouble::given_back || found == trouble::other_values;
    };
    CHECK(is_caught(writer_of(table, r)));
    ++early;
    // On the lane that reads it: the one that made it may have it again while its reader still runs. In the forward of the
    // first microbatch, alone, the next op that needs storage waits for that reader anyway.
    int const reader = last_reader_of(table, r, lane::comm);
    REQUIRE(reader >= 0);
    op const& reads_last = table.ops[static_cast<std::size_t>(reader)];
    if (reads_last.microbatch == 0 && reads_last.is_forward()) continue;
    CHECK(is_caught(reader));
    ++elsewhere;
  }
  CHECK(early == 2 * 2 * 3);
  CHECK(elsewhere == early - 2);
}

TEST_CASE("what is sent while another lane works goes back when it has left", "[building-blocks-01]") {
  lowered::step const step = lowered_step(proved_plan<OneFOneBOverlapped>(2, 3), 1);
  releases const planned = releases_of(step);
  sim::program const right = program_of(step, planned);
  CHECK(attacked(right, right) == trouble::none);
  int moved_up = 0;
  for (std::size_t rank = 0; rank < planned.size(); ++rank)
    for (std::size_t i = 0; i < planned[rank].size(); ++i) {
      release const& r = planned[rank][i];
      flat_table const& table = step.tables[rank];
      int const sent =
          std::max(last_reader_of(table, r, lane::send_lower), last_reader_of(table, r, lane::send_higher));
      if (sent < 0) continue;
      CAPTURE(rank, r.row, r.cell);
      releases moved = planned;
      moved[rank][i].row = writer_of(table, r), moved[rank][i].before = false;
      CHECK(attacked(program_of(step, moved), right) == trouble::given_back);
      ++moved_up;
    }
  CHECK(moved_up > 0);
}

TEST_CASE("what comes in from another rank is read behind its message, and written over behind its readers",
          "[megatron-c]") {
  lowered::step step = lowered_step(proved_plan<OneFOneBOverlapped>(2, 4), 1);
  sim::program const right = program_of(step, releases_of(step));
  int of_readers = 0, of_messages = 0;
  for (flat_table& table : step.tables) {
    CHECK_FALSE(table.check());
    for (op& o : table.ops)
      for (int l = 0; l < lane_count; ++l) {
        if (o.wait[l] < 0 || (!is_receive(o.on) && !is_receive(static_cast<lane>(l)))) continue;
        int const kept = std::exchange(o.wait[l], -1);
        CHECK(table.check().what == fault::race);
        ++(is_receive(o.on) ? of_messages : of_readers);
        o.wait[l] = kept;
      }
  }
  CHECK(of_readers > 0);
  CHECK(of_messages > 0);
  CHECK(attacked(right, right) == trouble::none);
}

// --- Communicators that meet on one device. --------------------------------------------------------------------------

TEST_CASE("expert and pipeline communication end on lanes of their own; that one channel for all would hang "
          "is seen",
          "[megatron-31][building-blocks-09]") {
  // Every communication waits for the one that was issued before it, whatever its communicator.
  auto const on_one_channel = [](sim::program all) {
    for (sim::rank_table& table : all.ranks) {
      int before = -1;
      for (int row = 0; row < table.ops.size(); ++row) {
        op& o = table.ops[row];
        if (o.on == lane::compute) continue;
        if (before >= 0 && table.ops[before].on != o.on) {
          int& w = o.wait[static_cast<int>(table.ops[before].on)];
          w = std::max(w, before);
        }
        before = row;
      }
    }
    return all;
  };
  auto const wiring = [](sim::program const& of, transport how) {
    return sim::machine(of, how).wiring().what;
  };
  for (int const ranks : {2, 3, 4})
    lowered::each_pipeline(ranks, 2 * ranks, [&](plan made) {
      lowered::step const step = lowered_step(std::move(made), 1);
      std::string const name = step.all.facts().name;
      CAPTURE(name, ranks, step.all.facts().chunks);
      sim::program const apart = program_of(step, releases_of(step), 2), together = on_one_channel(apart);
      CHECK(wiring(apart, transport::rendezvous) == trouble::none);
      CHECK(wiring(apart, transport::buffered) == trouble::none);
      CHECK(wiring(together, transport::buffered) == trouble::none);
      // Where sends wait for their receives, a gradient is issued before the receive of the activation that its reader sends first.
      bool const one_way_at_a_time = name == "serial" || name == "gpipe";
      CHECK(wiring(together, transport::rendezvous) == (one_way_at_a_time ? trouble::none : trouble::hang));
    });
}

// --- Memory. ---------------------------------------------------------------------------------------------------------

namespace {

/// The most tensors that are live at once on a rank, and how many are left at its end.
struct live_tensors {
  int most = 0, left = 0;
};
live_tensors count_live(flat_table const& table, detail::sequence<release> const& freed) {
  std::set<std::pair<int, int>> live;
  live_tensors found;
  auto next = freed.begin();
  auto const each = [&live](int group, cell_set set, bool comes) {
    for (int cell = 0; cell < cells::first_boundary; ++cell) {
      if ((set & cells::one(cell)) == 0) continue;
      if (comes)
        live.insert({group, cell});
      else
        live.erase({group, cell});
    }
  };
  for (int row = 0; row <= static_cast<int>(table.ops.size()); ++row) {
    if (row < static_cast<int>(table.ops.size())) {
      op const& o = table.ops[static_cast<std::size_t>(row)];
      each(o.group, o.touches.writes, true), each(o.next_group, o.touches.next_writes, true);
      each(o.group, o.touches.clears, false), each(o.next_group, o.touches.next_clears, false);
    }
    for (; next != freed.end() && next->row == row; ++next) live.erase({next->group, next->cell});
    found.most = std::max(found.most, static_cast<int>(live.size()));
  }
  // Metadata is cleared by the op that uses it last, tensors by releases.
  found.left = static_cast<int>(live.size());
  return found;
}

} // namespace

TEST_CASE("live tensors do not grow with the microbatches, and none is left",
          "[megatron-22][pipelines-18][building-blocks-03]") {
  int compared = 0;
  for (int const ranks : {1, 2, 4}) {
    std::vector<std::vector<int>> most; // by number of microbatches, then by pipeline and rank
    for (int const microbatches : {3 * ranks, 5 * ranks, 8 * ranks}) {
      most.emplace_back();
      lowered::each_pipeline(ranks, microbatches, [&](plan made) {
        plan_facts const facts = made.facts();
        if (facts.name == std::string("gpipe")) return; // holds every microbatch, and says so
        lowered::step const step = lowered_step(std::move(made), 2);
        for (int rank = 0; rank < ranks; ++rank) {
          CAPTURE(facts.name, ranks, rank, microbatches, facts.chunks);
          live_tensors const found =
              count_live(step.tables[static_cast<std::size_t>(rank)], lowered::releases_of(step, rank));
          CHECK(found.left == 0);
          most.back().push_back(found.most);
        }
      });
    }
    CHECK(most[1] == most[0]);
    CHECK(most[2] == most[0]);
    compared += static_cast<int>(most[0].size());
  }
  CHECK(compared > 40);
}

// --- Order of a chunk. -----------------------------------------------------------------------------------------------

TEST_CASE(
    "two forward layers beside three backward ones: the left-over runs alone, the gradient leaves before the "
    "last weight gradient",
    "[megatron-10][megatron-f]") {
  // Rank 0 of two: its chunk 0 has two layers, its chunk 1 three; the gradient of chunk 1 goes to rank 1.
  lowered::step const step = lowered::lower(proved_plan<DualPipeV>(2, 6), policy::split, [](int stage) {
    return std::vector<int>(stage == 3 ? 3U : 2U, lowered::moe);
  });
  std::vector<op> const ops(step.tables[0].ops.begin(), step.tables[0].ops.end());
  // The pair of F of a microbatch on chunk 0 and B of another one on chunk 1, in the steady state.
  auto const last = std::find_if(ops.rbegin(), ops.rend(), [&](op const& o) {
    return o.chunk == 0 && !o.is_message() && o.is_forward() && o.layer == 1 && o.node == 3;
  });
  REQUIRE(last != ops.rend());
  int const f = last->microbatch;
  auto const first = std::find_if(ops.begin(), ops.end(), [&](op const& o) {
    return o.chunk == 0 && !o.is_message() && o.is_forward() && o.microbatch == f;
  });
  // The pair begins with the combine of the last layer of chunk 1.
  auto const begin = std::prev(first);
  std::vector<std::string> names;
  for (auto at = begin; at != ops.end() && names.size() < 28; ++at) {
    std::string name = toy::name_of_row<Model>(*at);
    if (!at->is_message()) name += ' ' + std::to_string(at->layer);
    names.push_back(name);
  }
  CHECK(names == std::vector<std::string>{"B.combine 4",  "F.attn 0",     "I.mlp 4",       "F.dispatch 0",
                                          "B.dispatch 4", "W.mlp 4",      "F.mlp 0",       "F.combine 0",
                                          "I.attn 4",     "W.attn 4",     "B.combine 3",   "F.attn 1",
                                          "I.mlp 3",      "F.dispatch 1", "B.dispatch 3",  "W.mlp 3",
                                          "F.mlp 1",      "F.combine 1",  "send higher F", "I.attn 3",
                                          "W.attn 3",     "B.combine 2",  "I.mlp 2",       "B.dispatch 2",
                                          "W.mlp 2",      "I.attn 2",     "send higher B", "W.attn 2"});
}

TEST_CASE("a gradient leaves as soon as it exists, also where the forward has more layers than the backward",
          "[megatron-f]") {
  int sent = 0, with_layers_left = 0;
  for (int const ranks : {2, 3})
    lowered::each_pipeline(ranks, 2 * ranks + 1, [&](plan made) {
      plan_facts const facts = made.facts();
      // In a V both may leave on one lane; then the activation goes first at either end.
      if (!facts.pairs || facts.map != placement::looped) return;
      lowered::step const step = lowered::lower(std::move(made), policy::split, [&](int stage) {
        return std::vector<int>(stage / facts.ranks % 2 == 0 ? 3U : 1U, lowered::moe);
      });
      for (flat_table const& table : step.tables)
        for (std::size_t row = 1; row < table.ops.size(); ++row) {
          op const& o = table.ops[row];
          if (!is_send(o.on) || o.is_forward()) continue;
          op const& made_it = table.ops[row - 1];
          CAPTURE(facts.name, ranks, row);
          CHECK(made_it.what == pass::backward_input);
          CHECK(made_it.microbatch == o.microbatch);
          ++sent;
          auto const next =
              std::find_if(table.ops.begin() + static_cast<long>(row), table.ops.end(), [](op const& n) {
                return !n.is_message() && n.on == lane::compute && n.is_forward();
              });
          with_layers_left += next != table.ops.end() && next->layer != step.shapes[0].first(next->chunk) &&
                              next->microbatch != o.microbatch;
        }
    });
  CHECK(sent > 0);
  CHECK(with_layers_left > 0);
}

// --- Where stages lie. -----------------------------------------------------------------------------------------------

TEST_CASE("every stage lies on one rank, and a rank knows which", "[pipelines-11]") {
  for (int ranks = 1; ranks <= 9; ++ranks)
    shipped_pipelines::each([&]<class Pipeline>() {
      for (int chunks = 1; chunks <= (most_chunks<Pipeline>() == Pipeline::chunks ? 1 : 4); ++chunks) {
        bool const own = most_chunks<Pipeline>() == Pipeline::chunks;
        plan_facts const facts = facts_of<Pipeline>(ranks, 4 * ranks, own ? 0 : chunks);
        CAPTURE(Pipeline::name, ranks, facts.chunks);
        std::set<int> stages;
        for (int rank = 0; rank < ranks; ++rank)
          for (int c = 0; c < facts.chunks; ++c) {
            int const stage = facts.stage(rank, c);
            CHECK(facts.owner(stage) == rank);
            CHECK(chunk_of(ranks, stage) == c);
            stages.insert(stage);
          }
        CHECK(stages.size() == static_cast<std::size_t>(facts.stages()));
        CHECK(*stages.begin() == 0);
        CHECK(*stages.rbegin() == facts.stages() - 1);
      }
    });
}
