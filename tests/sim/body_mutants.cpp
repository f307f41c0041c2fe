#include "sim/matrix.hpp"
#include "sim/model.hpp"
#include "sim/mutate.hpp"

#include <stretto/program/ports.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace sim_test;
using sim::transport, sim::trouble;

namespace {

struct body_place {
  form what;
  int forward, backward;
};

/// Mutants of one body: the code of a layer alone or of two, between its ports.
class body_mutants {
public:
  body_mutants(matrix& into, model_values const& model, policy_values const& policy, body_place at)
      : into_(into), model_(model), policy_(policy), at_(at), whole_(make(policy)) {
    sim::program const of = program_of(rows_of_draft(whole_));
    sim::machine machine(of, transport::any_time);
    values_ = machine.run().values;
    sim::finding const found = attack(machine, values_);
    if (whole_.problem || found)
      FAIL(policy.name << ", blocks " << at.forward << " and " << at.backward
                       << ": nothing is wrong, but the simulator says " << name_of(found.wrong.what));
  }

  void mutate() {
    rank_step const whole = rows_of_draft(whole_);
    for (int row = 0; row < rows_of(whole); ++row) {
      for (int l = 0; l < lane_count; ++l)
        if (row_of(whole, row).wait[l] >= 0) {
          rank_step mutant = whole;
          int const w = std::exchange(row_of(mutant, row).wait[l], -1);
          enter("body: drop a wait", mutant, comes_before(mutant, w, row));
        }
      if (int const next = next_on_lane(whole, row, row_of(whole, row).on); next >= 0) {
        rank_step mutant = whole;
        move_row(mutant, next, row);
        enter("body: swap neighbours of a lane", mutant, false);
      }
    }
    // Of the order that a policy writes down waits are derived anew.
    pair_builder const& order = policy_.order;
    for (int i = 0; i < order.size(); ++i) {
      enter_order("policy: drop a line", i, [&](pair_builder& to, int k) {
        if (k != i) append(to, order[k]);
      });
      enter_order("policy: double a line", i, [&](pair_builder& to, int k) {
        append(to, order[k]);
        if (k == i) append(to, order[k]);
      });
      if (i + 1 < order.size())
        enter_order("policy: swap neighbouring lines", i, [&](pair_builder& to, int k) {
          append(to, order[k == i ? i + 1 : k == i + 1 ? i : k]);
        });
    }
  }

private:
  static void append(pair_builder& to, request const& r) {
    if (r.on == lane::comm)
      to.comm(r);
    else
      to.compute(r);
  }
  detail::draft make(policy_values const& policy) const {
    return make_body(model_, policy, at_.what, at_.forward, at_.backward);
  }
  block_facts const* facts(int type) const {
    return type < 0 ? nullptr : &model_.blocks[static_cast<std::size_t>(type)];
  }
  /// A body is no whole step.
  static diagnosis check(rank_step const& body) {
    return check_table(body.table.ops.data(), rows_of(body), body.table.groups, body.table.layers);
  }
  static rank_step rows_of_draft(detail::draft const& from) {
    rank_step rows;
    rows.table.groups = detail::body_groups, rows.table.layers = 2;
    rows.table.ops = detail::sequence<op>(from.ops, from.ops + from.count);
    return rows;
  }

  /// The rows, and whoever takes what they hand over: it waits for the op that speaks for all of them.
  sim::program program_of(rank_step rows) const {
    sim::program of;
    for (block_facts const& f : model_.blocks) of.blocks.push_back(f);
    of.chain = model_.chain;
    program<detail::max_rows> table;
    for (int i = 0; i < rows_of(rows); ++i) table.ops[i] = row_of(rows, i);
    auto const take = [&](int speaker, bool gradient, int group, bool hands_over) {
      if (speaker < 0 || !hands_over) return;
      op o;
      o.what = gradient ? pass::backward : pass::forward;
      o.on = gradient ? lane::send_lower : lane::send_higher;
      o.peer = 1, o.group = o.next_group = group, o.microbatch = gradient ? 1 : 0;
      o.wait[static_cast<int>(row_of(rows, speaker).on)] = speaker;
      rows.table.ops.push_back(o);
    };
    block_facts const *f = facts(at_.forward), *b = facts(at_.backward);
    bool gives = false;
    for (int v = 0; f != nullptr && v < f->roots; ++v)
      gives |= f->root_is_output[v] && model_.chain.find(f->root[v]) >= 0;
    int const forward = detail::forward_export(table), backward = detail::backward_export(table);
    take(forward, false, 1, gives);
    take(backward, true, 2, b != nullptr && b->inputs > 0);
    sim::rank_table rank;
    set_rows(rank, rows);
    for (int l = 0; l < 2; ++l) rank.layer_id.push_back(l);
    rank.stage.push_back(1);
    of.ranks.push_back(rank);
    return of;
  }
  trouble caught_in(rank_step const& rows) const {
    sim::program const of = program_of(rows);
    sim::machine machine(of, transport::any_time);
    return attack(machine, values_).wrong.what;
  }

  void enter(char const* kind, rank_step const& mutant, bool equivalent) {
    diagnosis const refused = check(mutant);
    verdict const found{refused.what, caught_in(mutant)};
    bool lost = false;
    if (refused.what == fault::wait_on_later && found.caught == trouble::none) {
      rank_step without = mutant;
      for (int i = 0; i < rows_of(without); ++i)
        for (int& w : row_of(without, i).wait) w = w > i ? -1 : w;
      lost = !check(without);
    }
    into_.enter(kind, policy_.name, "", found, equivalent, lost);
  }
  void enter_order(char const* kind, int line, auto&& write) {
    policy_values changed = policy_;
    changed.order = {};
    for (int k = 0; k < policy_.order.size(); ++k) write(changed.order, k);
    detail::draft mutant = make(changed);
    // A line that this body has no op for changes nothing.
    if (!mutant.problem && same_rows(mutant, whole_)) return;
    bool const doubled = mutant.problem.what == fault::doubled_node;
    if (doubled) {
      // It stops at the second one; what would run is the op once more.
      mutant = whole_;
      int const row = row_of_line(line);
      if (row < 0) return;
      rank_step twice = rows_of_draft(whole_);
      double_row(twice, row);
      link(twice.table.ops.data(), rows_of(twice), detail::body_groups, 2);
      into_.enter(kind, policy_.name, "", {fault::doubled_node, caught_in(twice)}, false, false);
      return;
    }
    rank_step rows = rows_of_draft(mutant);
    link(rows.table.ops.data(), rows_of(rows), detail::body_groups, 2);
    into_.enter(kind, policy_.name, "", {mutant.problem.what, caught_in(rows)}, false, false);
  }
  static bool same_rows(detail::draft const& a, detail::draft const& b) {
    auto const same = [](op const& x, op const& y) {
      return x.what == y.what && x.on == y.on && x.node == y.node && x.layer == y.layer;
    };
    return a.count == b.count && std::equal(a.ops, a.ops + a.count, b.ops, same);
  }
  /// The row that a line of the policy makes, or -1.
  int row_of_line(int line) const {
    request const& r = policy_.order[line];
    for (int row = 0; row < whole_.count; ++row) {
      op const& o = whole_.ops[row];
      if (o.is_port() || o.is_forward() != (r.what == pass::forward)) continue;
      block_facts const& f = *facts(o.is_forward() ? at_.forward : at_.backward);
      bool const weight = o.what == pass::backward_weight;
      if (weight != (r.what == pass::backward_weight)) continue;
      for (int p = 0; p < f.phases; ++p)
        if (f.node_of[p] == o.node && f.kind[p] == r.kind) return row;
    }
    return -1;
  }

  matrix& into_;
  model_values const& model_;
  policy_values const& policy_;
  body_place at_;
  detail::draft whole_;
  numbered_values values_;
};

} // namespace

void sim_test::mutate_bodies(matrix& into) {
  model_values const model = values_of<Model>();
  int const types = Model::count;
  for (policy_values const& policy : shipped_policies()) {
    auto const mutate = [&](body_place at) { body_mutants(into, model, policy, at).mutate(); };
    for (int k = 0; k < types; ++k) {
      mutate({form::forward, k, -1});
      for (form const f : {form::backward, form::backward_input, form::backward_weight}) mutate({f, -1, k});
      // The ends of a model run alone.
      for (int other = 0; other < embedding && k < embedding; ++other)
        mutate({form::forward_backward, k, other});
    }
  }
}
