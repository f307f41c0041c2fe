#include "programs.hpp"

#include <stretto/program/body.hpp>
#include <stretto/program/ports.hpp>

#include <map>

namespace sim_test {

namespace {

/// A draft that lives on, with what its neighbours ask for.
struct made_body {
  program<detail::max_rows> rows;
  detail::body_rows view;
};

/// Whether a fault is one of rows and waits: the body has all its ops.
bool is_of_table(fault what) {
  return what == fault::unwritten_read || what == fault::weight_before_input || what == fault::race ||
         what == fault::read_after_release;
}

class lowering {
public:
  lowering(model_values const& model, policy_values const& policy) : model_(model), policy_(policy) {}

  diagnosis problem{}, unproved{};

  rank_step rank(plan const& all, plan_steps const& lists, int rank, layer_shape const& layers) {
    detail::chain_layout const layout(all.facts(), rank, layers);
    detail::lowering_source const from{
        &model_.chain, this,
        [](void const* of, int type) { return &self(of).model_.blocks[static_cast<std::size_t>(type)]; },
        [](void const* of, form what, int f, int b) { return self(of).rows_of(what, f, b); }};
    rank_step made{detail::lower(detail::place_steps(all, lists, rank), from, layers, layout).table, {}};
    if (!problem) made.releases = detail::plan_releases(made.table, from, layout, layers);
    return made;
  }

private:
  static lowering& self(void const* of) { return *const_cast<lowering*>(static_cast<lowering const*>(of)); }
  detail::body_rows rows_of(form what, int forward, int backward) {
    auto const [at, added] =
        bodies_.try_emplace(std::array<int, 3>{static_cast<int>(what), forward, backward});
    made_body& made = at->second;
    if (added) {
      detail::draft const draft = make_body(model_, policy_, what, forward, backward);
      bool const has_table = is_of_table(draft.problem.what);
      if (!has_table && draft.problem && !problem) problem = draft.problem;
      if (has_table && !unproved) unproved = draft.problem;
      for (int i = 0; i < draft.count; ++i) made.rows.ops[i] = draft.ops[i];
      made.view = {made.rows.ops, problem ? 0 : draft.count, detail::forward_export(made.rows),
                   detail::backward_export(made.rows)};
    }
    return made.view;
  }

  model_values const& model_;
  policy_values const& policy_;
  std::map<std::array<int, 3>, made_body> bodies_;
};

} // namespace

std::vector<policy_values> const& shipped_policies() {
  static std::vector<policy_values> const all = {policy_of<Serial>("serial", false),
                                                 policy_of<TwoStream1F1B>("two_stream_1f1b", false),
                                                 policy_of<TwoStream1F1B>("split_dw", true)};
  return all;
}

detail::draft make_body(model_values const& model, policy_values const& policy, form what, int forward,
                        int backward) {
  auto const facts = [&](int k) { return k < 0 ? nullptr : &model.blocks[static_cast<std::size_t>(k)]; };
  return detail::checked(detail::body_maker(facts(forward), facts(backward), model.chain, {forward, backward},
                                            what, policy.splits)
                             .make(policy.order));
}

step lower_values(plan made, model_values const& model, policy_values const& policy,
                  std::function<std::vector<int>(int)> const& types) {
  plan_facts const facts = made.facts();
  step result{std::move(made), {}, {}, {}, {}};
  plan_steps const lists = lower_messages(result.all);
  lowering lower(model, policy);
  for (int rank = 0; rank < facts.ranks; ++rank) {
    std::vector<std::vector<int>> chunks;
    for (int c = 0; c < facts.chunks; ++c) chunks.push_back(types(facts.stage(rank, c)));
    result.shapes.emplace_back(chunks);
    result.ranks.push_back(lower.rank(result.all, lists, rank, result.shapes.back()));
  }
  result.problem = lower.problem, result.unproved = lower.unproved;
  if (result.problem) result.ranks.clear();
  return result;
}

void set_rows(sim::rank_table& to, rank_step const& from) {
  to.ops.clear(), to.gives_back.clear();
  for (op const& o : from.table.ops) to.ops.push_back(o);
  for (release const& r : from.releases) to.gives_back.push_back({r.row, r.group, r.cell, r.before});
}

sim::program program_of(step const& of, model_values const& model) {
  sim::program all;
  for (block_facts const& f : model.blocks) all.blocks.push_back(f);
  all.chain = model.chain;
  plan_facts const& facts = of.all.facts();
  auto const shape = [&](int rank) -> layer_shape const& {
    return of.shapes[static_cast<std::size_t>(rank)];
  };
  std::vector<int> first(static_cast<std::size_t>(facts.stages()), 0);
  int layers = 0;
  for (int stage = 0; stage < facts.stages(); ++stage) {
    int const rank = facts.owner(stage), c = chunk_of(facts.ranks, stage);
    first[static_cast<std::size_t>(stage)] = layers;
    layers += shape(rank).first(c + 1) - shape(rank).first(c);
  }
  for (int rank = 0; rank < facts.ranks; ++rank) {
    sim::rank_table table;
    set_rows(table, of.ranks[static_cast<std::size_t>(rank)]);
    for (int c = 0; c < facts.chunks; ++c) {
      int const stage = facts.stage(rank, c);
      table.stage.push_back(stage);
      for (int l = shape(rank).first(c); l < shape(rank).first(c + 1); ++l)
        table.layer_id.push_back(first[static_cast<std::size_t>(stage)] + l - shape(rank).first(c));
    }
    all.ranks.push_back(table);
  }
  return all;
}

sim::program alone(sim::program const& all, int rank) {
  sim::program one;
  one.blocks = all.blocks, one.chain = all.chain;
  one.ranks.push_back(all.ranks[rank]);
  return one;
}

} // namespace sim_test
