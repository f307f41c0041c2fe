#include "run_plan.hpp"

#include <stretto/pipelines/all.hpp>
#include <stretto/pipelines/policies.hpp>
#include <stretto/plan/error.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

namespace train_moe {
namespace {

stretto::policy_needs const& needs_of(policy how) {
  std::string_view const name = name_of(how);
  for (auto const& each : stretto::layer_policies)
    if (each.name == name) return each;
  throw std::logic_error("the layer policies have no " + std::string(name));
}

/// Phases with autograd can always split their backward.
constexpr bool phases_split = true;

/// Calls `act.operator()<Pipeline>()` with the pipeline of the run.
template <class Act> void with_pipeline(options const& o, policy how, Act&& act) {
  auto const name = pipeline_of(o, how);
  if (!stretto::shipped_pipelines::with(name.c_str(), act))
    throw std::logic_error("there is no pipeline " + name);
}

} // namespace

std::vector<std::string> const& pipeline_names() {
  using all = stretto::shipped_pipelines;
  static std::vector<std::string> const names{std::begin(all::names), std::end(all::names)};
  return names;
}

std::string pipeline_of(options const& o, policy how) {
  if (!o.pipeline.empty()) return o.pipeline;
  return needs_of(how).overlaps ? stretto::OneFOneBOverlapped::name : stretto::SerialPipeline::name;
}

bool goes_with_pipeline(options const& o, policy how) {
  bool fits = false;
  with_pipeline(o, how, [&]<class Pipeline>() {
    auto const found = stretto::fit<Pipeline>(needs_of(how), phases_split);
    fits = found == stretto::policy_fit::overlapped || found == stretto::policy_fit::alone;
  });
  return fits;
}

stretto::plan plan_of(options const& o, policy how) {
  std::optional<stretto::plan> made;
  try {
    with_pipeline(o, how, [&]<class Pipeline>() {
      auto const facts = stretto::facts_of<Pipeline>(o.pp, o.microbatches, o.chunks);
      stretto::require(facts, stretto::check_policy(needs_of(how), facts, phases_split));
      made.emplace(stretto::proved_plan<Pipeline>(o.pp, o.microbatches, o.chunks));
    });
  } catch (std::invalid_argument const& refusal) {
    throw input_error(refusal.what());
  }
  return std::move(*made);
}

std::vector<stretto::message_route> routes_of(stretto::plan_facts const& facts) {
  std::vector<stretto::message_route> routes;
  for (int stage = 0; stage + 1 < facts.stages(); ++stage) {
    int const from = facts.owner(stage), to = facts.owner(stage + 1);
    if (from == to) continue;
    routes.push_back({from, to, false});
    routes.push_back({to, from, true});
  }
  std::sort(routes.begin(), routes.end());
  routes.erase(std::unique(routes.begin(), routes.end()), routes.end());
  return routes;
}

std::vector<stage_part> parts_of(stretto::plan_facts const& facts, int pipeline_rank, int layers) {
  std::vector<stage_part> parts;
  for (int chunk = 0; chunk < facts.chunks; ++chunk) {
    int const stage = facts.stage(pipeline_rank, chunk);
    parts.push_back({facts.first_layer(layers, stage), facts.first_layer(layers, stage + 1), stage == 0,
                     stage == facts.stages() - 1});
  }
  return parts;
}

} // namespace train_moe
