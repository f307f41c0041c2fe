#pragma once

#include "sim/matrix.hpp"
#include "sim/mutate.hpp"

#include <stretto/pipelines/all.hpp>

#include <algorithm>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

/// Programs of random blocks, policies and pipelines, with at most one random change to their tables.
namespace sim_test {

/// The decisions that make a program: random ones, or those of a list. A shorter list and smaller numbers make a smaller
/// program, which is all that shrinking needs to know.
class choices {
public:
  explicit choices(unsigned long long seed) : random_(numbers(seed)) {}
  explicit choices(std::vector<int> taken) : taken_(std::move(taken)) {}

  int below(int limit) {
    if (!random_) return at_ < taken_.size() ? (std::min)(taken_[at_++], limit - 1) : 0;
    taken_.push_back(random_->below(limit));
    return taken_.back();
  }
  bool one_in(int count) { return below(count) == count - 1; }
  std::vector<int> const& taken() const { return taken_; }

private:
  std::optional<numbers> random_;
  std::vector<int> taken_;
  std::size_t at_ = 0;
};

inline constexpr char const* phase_names[] = {"p0", "p1", "p2", "p3", "p4", "p5", "p6", "p7"};

/// One block: its phases, what they read, write and save, and what it carries.
class block_maker {
public:
  enum place { first, inner, last };

  block_maker(choices& by, place at, int chain) : by_(by) {
    static char const* const names[] = {"first", "inner", "last"};
    f_.name = {names[at], 5};
    int const phases = by.one_in(8) ? 1 + by.below(max_phases) : 1 + by.below(4);
    // Where each chain value is read, whether it is passed on as it is, and where it is written anew.
    for (int c = 0; c < chain; ++c) {
      reader_[c] = at == first ? -1 : by.below(phases);
      carried_[c] = at == inner && by.one_in(4);
      writer_[c] = at == last || carried_[c]
                       ? -1
                       : (std::max)(reader_[c], 0) + by.below(phases - (std::max)(reader_[c], 0));
    }
    int kind = by.below(3);
    for (int p = 0; p < phases; ++p) {
      int const before = kind;
      kind = by.one_in(10) ? by.below(5) : (std::min)(4, kind + by.below(3));
      if (p == 0) kind = before;
      add_phase(p, static_cast<phase_kind>(kind), chain, at == last && p == phases - 1);
    }
    for (int n = 0; n < f_.nodes; ++n) f_.recomputes[n] = by.one_in(6);
    for (int i = 0; i < f_.inputs; ++i) f_.input_is_carried[i] = carried_[f_.input[i] - 1];
    // What leaves the block is storage of its own.
    for (int v = 0; v < f_.roots; ++v)
      if (f_.root_is_output[v]) f_.root_alias[v] = -1;
  }

  block_facts const& made() const { return f_; }

private:
  /// Chain values have the ids from 1, the others larger ones.
  static constexpr detail::type_id own_ids = 100;

  void add_phase(int p, phase_kind kind, int chain, bool ends) {
    f_.kind[p] = kind;
    bool const cut = p > 0 && (f_.kind[p - 1] != kind ? !by_.one_in(12) : by_.below(3) > 0);
    if (p == 0 || cut) ++f_.nodes;
    f_.node_of[p] = f_.nodes - 1;
    f_.has_weights[p] = by_.below(3) > 0;
    f_.has_explicit_backward[p] = f_.has_backward_weight[p] = true;
    f_.phase_name[p] = {phase_names[p], 2};
    f_.phases = p + 1;
    for (int c = 0; c < chain; ++c)
      if (reader_[c] == p) read_input(p, c);
    for (int v = 0; v < f_.roots && f_.leaves < max_reads - 4; ++v)
      if (f_.root_writer[v] < p && f_.root[v] >= own_ids && by_.one_in(2)) read(p, v);
    for (int c = 0; c < chain; ++c)
      if (writer_[c] == p) write(p, static_cast<detail::type_id>(c + 1), false, false);
    for (int n = by_.one_in(6) ? 0 : 1 + by_.below(2); n > 0 && f_.roots < max_values - 4; --n)
      write(p, own_ids + static_cast<detail::type_id>(f_.roots), by_.one_in(6), false);
    if (ends) write(p, own_ids + static_cast<detail::type_id>(f_.roots), false, true);
  }
  void read_input(int p, int c) {
    int const r = f_.leaves++, i = f_.inputs++;
    f_.leaf_phase[r] = p, f_.leaf_root[r] = -1, f_.leaf_input[r] = i;
    f_.leaf_is_saved[r] = by_.one_in(2);
    f_.input[i] = static_cast<detail::type_id>(c + 1), f_.input_node[i] = f_.node_of[p];
  }
  void read(int p, int v) {
    int const r = f_.leaves++;
    f_.leaf_phase[r] = p, f_.leaf_root[r] = v, f_.leaf_input[r] = -1;
    f_.leaf_is_saved[r] = by_.one_in(2);
    f_.leaf_inside_node[r] = f_.node_of[f_.root_writer[v]] == f_.node_of[p];
    f_.root_is_output[v] = false;
  }
  void write(int p, detail::type_id id, bool metadata, bool objective) {
    int const v = f_.roots++;
    f_.root[v] = id, f_.root_writer[v] = p;
    f_.root_is_metadata[v] = metadata, f_.root_is_objective[v] = objective;
    f_.root_is_saved[v] = by_.one_in(3);
    f_.root_is_output[v] = !metadata && !objective;
    if (!f_.root_is_output[v] || id < own_ids || !by_.one_in(4)) return;
    for (int r = f_.leaves - 1; r >= 0 && f_.leaf_phase[r] == p && f_.root_alias[v] < 0; --r)
      if (f_.leaf_root[r] < 0 || !f_.root_is_metadata[f_.leaf_root[r]]) f_.root_alias[v] = r;
  }

  choices& by_;
  block_facts f_;
  int reader_[max_carried] = {}, writer_[max_carried] = {};
  bool carried_[max_carried] = {};
};

/// Everything about one random program, and the one change that may have been made to it.
struct random_program {
  model_values model;
  policy_values policy;
  std::vector<std::vector<int>> types;
  std::optional<step> made;
  std::string pipeline, change = "none";
  int changed = -1; ///< rank
  rank_step whole; ///< as it was before the change

  explicit random_program(choices& by) {
    make_model(by);
    make_policy(by);
    make_step(by);
    if (made->problem || made->ranks.empty()) return;
    of = program_of(*made, model);
    // What is refused as it is stays as it is.
    bool const refused = std::any_of(made->ranks.begin(), made->ranks.end(), [](rank_step const& rank) {
      return static_cast<bool>(refusal_of(rank));
    });
    if (!made->unproved && !refused && by.one_in(2)) change_one(by);
  }

  sim::program of;

private:
  void make_model(choices& by) {
    int const chain = 1 + by.below(2);
    for (auto const at : {block_maker::first, block_maker::inner, block_maker::inner, block_maker::last})
      model.blocks.push_back(block_maker(by, at, chain).made());
    for (int k = 0; k < 4; ++k) model.chain.add_inputs(model.blocks[static_cast<std::size_t>(k)], k);
    for (block_facts const& f : model.blocks) model.chain.add_outputs(f);
  }
  /// The forward from front to back, the backward from back to front, merged anyhow; at times two lines change places.
  void make_policy(choices& by) {
    pair_builder const p;
    std::vector<request> f, b, lines;
    policy.splits = by.one_in(2);
    // Forward, backward and weight passes of a kind run on one lane, but for some.
    lane on[3][5];
    for (int k = 0; k < 5; ++k) {
      on[0][k] = by.one_in(2) ? lane::comm : lane::compute;
      for (int side : {1, 2})
        on[side][k] = by.one_in(8) ? (by.one_in(2) ? lane::comm : lane::compute) : on[0][k];
    }
    auto const add = [&](std::vector<request>& to, request r, int side) {
      r.on = on[side][static_cast<int>(r.kind)];
      to.push_back(r);
    };
    std::vector<request> late;
    for (int k = 0; k < 5; ++k) add(f, p.f.forward(static_cast<phase_kind>(k)), 0);
    for (int k = 4; k >= 0; --k) {
      add(b, p.b.input(static_cast<phase_kind>(k)), 1);
      add(by.one_in(2) ? late : b, p.b.weight(static_cast<phase_kind>(k)), 2);
    }
    b.insert(b.end(), late.begin(), late.end());
    std::size_t next_f = 0, next_b = 0;
    while (next_f < f.size() || next_b < b.size()) {
      bool const forward = next_b == b.size() || (next_f < f.size() && by.one_in(3));
      lines.push_back(forward ? f[next_f++] : b[next_b++]);
    }
    if (by.one_in(6)) {
      std::size_t const at = static_cast<std::size_t>(by.below(static_cast<int>(lines.size()) - 1));
      std::swap(lines[at], lines[at + 1]);
    }
    for (request const& r : lines) r.on == lane::comm ? policy.order.comm(r) : policy.order.compute(r);
  }
  void make_step(choices& by) {
    int number = by.below(shipped_pipelines::size);
    int const ranks = 1 + by.below(3), more = by.below(3);
    shipped_pipelines::each([&]<class Pipeline>() {
      if (number-- != 0) return;
      pipeline = Pipeline::name;
      int const least = Pipeline::min_microbatches(ranks);
      plan all = lay_out<Pipeline>(facts_of<Pipeline>(ranks, (std::max)(least, 1 + more)));
      int const stages = all.facts().stages();
      for (int stage = 0; stage < stages; ++stage) {
        std::vector<int> of_stage;
        if (stage == 0) of_stage.push_back(0);
        for (int n = by.below(3); n > 0; --n) of_stage.push_back(1 + by.below(2));
        if (stage == stages - 1) of_stage.push_back(3);
        types.push_back(of_stage);
      }
      made.emplace(lower_values(std::move(all), model, policy,
                                [this](int stage) { return types[static_cast<std::size_t>(stage)]; }));
    });
  }

  void change_one(choices& by) {
    changed = by.below(static_cast<int>(made->ranks.size()));
    rank_step& at = made->ranks[static_cast<std::size_t>(changed)];
    whole = at;
    if (rows_of(at) < 2) return;
    int const kind = by.below(6), row = by.below(rows_of(at));
    std::ostringstream what;
    what << "rank " << changed << ": ";
    if (kind == 0) {
      for (int l = 0; l < lane_count; ++l)
        if (int const w = row_of(at, row).wait[l]; w >= 0) {
          row_of(at, row).wait[l] = -1;
          what << "row " << row << " no longer waits for row " << w;
          break;
        }
    } else if (kind == 1 && !at.releases.empty()) {
      release& r = at.releases[static_cast<std::size_t>(by.below(static_cast<int>(at.releases.size())))];
      if (move_up(at, r))
        what << "cell " << r.cell << " of group " << r.group << " goes back one place earlier, "
             << (r.before ? "before" : "behind") << " row " << r.row;
    } else if (!row_of(at, row).is_message()) {
      int const next = next_on_lane(at, row, row_of(at, row).on);
      if (kind == 2 && next >= 0) {
        what << "row " << next << " runs before row " << row;
        move_row(at, next, row);
      } else if (kind == 3) {
        what << "row " << row << " is gone";
        erase_row(at, row);
      } else if (kind == 4 && !row_of(at, row).is_forward()) {
        what << "row " << row << " runs twice";
        double_row(at, row);
      } else if (kind == 5 && row > 0) {
        int const to = by.below(row);
        what << "row " << row << " comes as row " << to;
        move_row(at, row, to);
      }
    }
    change = what.str();
    set_rows(of.ranks[changed], at);
  }
};

} // namespace sim_test
