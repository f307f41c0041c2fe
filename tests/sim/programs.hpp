#pragma once

#include <stretto/adapters/sim.hpp>
#include <stretto/executor/lower.hpp>
#include <stretto/plan/messages.hpp>
#include <stretto/simulate/ops.hpp>

#include <functional>
#include <vector>

/// Whole steps made from values alone: blocks, policies and plans that need not be types, lowered with the code that serves the
/// executor, and the same as programs of the simulator.
namespace sim_test {

using namespace stretto;

/// The block types of a model as values.
struct model_values {
  std::vector<block_facts> blocks;
  chain_facts chain;
};
template <class Model> model_values values_of() {
  model_values of;
  for (int k = 0; k < Model::count; ++k)
    of.blocks.push_back(*detail::facts_at<Model>(k, std::make_integer_sequence<int, Model::count>{}));
  of.chain = chain_of<Model>::value;
  return of;
}

/// A layer policy as a value.
struct policy_values {
  char const* name = "";
  pair_builder order;
  bool splits = false;
};
template <class Policy> policy_values policy_of(char const* name, bool splits) {
  policy_values of{name, {}, splits};
  Policy::pair(of.order);
  return of;
}

/// The layer policies that ship.
std::vector<policy_values> const& shipped_policies();

/// The table of one rank, and where its storage goes back.
struct rank_step {
  flat_table table;
  detail::sequence<release> releases;
};

/// A plan lowered on all ranks. `problem` is what its bodies are refused for before they have a table; then there are no
/// ranks. `unproved` is what the table of a body is refused for: that goes into the tables of the ranks as it is.
struct step {
  plan all;
  std::vector<layer_shape> shapes;
  std::vector<rank_step> ranks;
  diagnosis problem;
  diagnosis unproved;
};

/// `types(stage)` are the block types of a stage.
step lower_values(plan made, model_values const& model, policy_values const& policy,
                  std::function<std::vector<int>(int)> const& types);

/// The body of two layers, or of one alone (-1).
detail::draft make_body(model_values const& model, policy_values const& policy, form what, int forward,
                        int backward);

void set_rows(sim::rank_table& to, rank_step const& from);
/// What the simulator runs, with layers numbered through the model.
sim::program program_of(step const& of, model_values const& model);
sim::program alone(sim::program const& all, int rank);

} // namespace sim_test
