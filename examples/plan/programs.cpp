#include "programs.hpp"

#include "layer_types.hpp"
#include "usage.hpp"

#include <stretto/inspect.hpp>
#include <stretto/pipelines/dual_pipe_v.hpp>
#include <stretto/plan/error.hpp>

#include <algorithm>

#include <fmt/core.h>

namespace plan_program {

namespace {

using stretto::op;

struct SerialPair : stretto::Schedule<MoeLayer, stretto::Serial> {};
struct WholePair : stretto::Schedule<MoeLayer, stretto::TwoStream1F1B> {};
struct SplitPair : stretto::Schedule<MoeLayer, stretto::TwoStream1F1B, stretto::SplitDW> {};

/// Lowers the plans of every pipeline: its own pipeline only says that bodies of pairs and of halves are there.
struct Step : stretto::Schedule<MoeModel, stretto::TwoStream1F1B, stretto::SplitDW, stretto::DualPipeV> {};

/// Numbers of the block types of `MoeModel`.
constexpr int inner = 0, first = 1, last = 2;

/// Rows of a replay that is held in memory: some 400 MB.
constexpr double most_rows = 500'000;

double cost_of(layer_costs const& costs, stretto::phase_kind phase, stretto::pass what) {
  auto const pick = [&](layer_costs::phases const& from) {
    switch (phase) {
    case stretto::phase_kind::attn:
      return from.attn;
    case stretto::phase_kind::dispatch:
      return from.dispatch;
    case stretto::phase_kind::mlp:
      return from.mlp;
    case stretto::phase_kind::combine:
      return from.combine;
    case stretto::phase_kind::mtp:
      break;
    }
    return 0.0;
  };
  switch (what) {
  case stretto::pass::forward:
    return pick(costs.forward);
  case stretto::pass::backward:
    return pick(costs.input) + pick(costs.weight);
  case stretto::pass::backward_input:
    return pick(costs.input);
  case stretto::pass::backward_weight:
    return pick(costs.weight);
  }
  return 0;
}

template <class Schedule> layer_pair make_pair(std::string const& policy, layer_costs const& costs) {
  layer_pair pair;
  pair.policy = policy, pair.unit = costs.unit, pair.text = stretto::to_text<Schedule>();
  for (op const& row : stretto::pair_program<Schedule>) {
    pair.rows.push_back(row);
    pair.names.push_back(stretto::detail::op_name<Schedule>(row));
    pair.label.push_back(stretto::label_of<Schedule>({}, 0, row));
    pair.cost.push_back(row.is_port() ? 0 : cost_of(costs, pair.label.back().phase, row.what));
  }
  std::size_t next = 0;
  stretto::flat_table table;
  for (op const& row : pair.rows) table.ops.push_back(row);
  pair.times = stretto::simulate_ops({}, {table}, [&](int, op const&) { return pair.cost[next++]; })[0];
  return pair;
}

stretto::layer_shape shape_of(stretto::plan_facts const& facts, int rank, int layers) {
  std::vector<std::vector<int>> chunks;
  for (int c = 0; c < facts.chunks; ++c) {
    int const stage = facts.stage(rank, c), all = facts.stages();
    std::vector<int> types(
        static_cast<std::size_t>(facts.first_layer(layers, stage + 1) - facts.first_layer(layers, stage)),
        inner);
    if (stage == 0) types.front() = first;
    if (stage == all - 1) types.back() = last;
    chunks.push_back(std::move(types));
  }
  return stretto::layer_shape(chunks);
}

/// A layer of a microbatch is live from its first op to its last.
int peak_layers(stretto::flat_table const& table, int microbatches) {
  auto const key = [&](op const& row) {
    return static_cast<std::size_t>(row.layer) * static_cast<std::size_t>(microbatches) +
           static_cast<std::size_t>(row.microbatch);
  };
  std::vector<int> left(static_cast<std::size_t>(table.layers) * static_cast<std::size_t>(microbatches)),
      begun(left);
  for (op const& row : table.ops)
    if (!row.is_message()) ++left[key(row)];
  int live = 0, peak = 0;
  for (op const& row : table.ops) {
    if (row.is_message()) continue;
    if (begun[key(row)]++ == 0) peak = std::max(peak, ++live);
    if (--left[key(row)] == 0) --live;
  }
  return peak;
}

} // namespace

std::vector<std::string> const& layer_policy_names() {
  static std::vector<std::string> const names = {"serial", "two_stream_1f1b", "split_dw"};
  return names;
}

double layer_pair::makespan() const {
  double end = 0;
  for (stretto::op_times const& one : times) end = std::max(end, one.end);
  return end;
}

double layer_pair::busy(stretto::lane on) const {
  double sum = 0;
  for (std::size_t row = 0; row < rows.size(); ++row) sum += rows[row].on == on ? cost[row] : 0;
  return sum;
}

layer_pair pair_of(std::string const& policy, layer_costs const& costs) {
  if (policy == "serial") return make_pair<SerialPair>(policy, costs);
  if (policy == "two_stream_1f1b") return make_pair<WholePair>(policy, costs);
  return make_pair<SplitPair>(policy, costs);
}

rank_time rank_time_of(std::span<stretto::span const> spans, int rank, double makespan) {
  stretto::busy_time const busy = stretto::busy_of_rank(spans, rank);
  return {busy.compute_us, busy.communication_us, busy.exposed_us,
          makespan - busy.compute_us - busy.exposed_us, 0};
}

stretto::op_label phase_replay::label(int rank, std::size_t row) const {
  return name(facts, rank, tables[static_cast<std::size_t>(rank)].ops[row]);
}

std::vector<stretto::span> phase_replay::spans(int rank) const {
  auto const at = static_cast<std::size_t>(rank);
  std::vector<stretto::span> all;
  for (std::size_t row = 0; row < tables[at].ops.size(); ++row)
    all.push_back({label(rank, row), rank, times[at][row].start, times[at][row].end});
  return all;
}

void require_fits(std::string const& flag, stretto::plan_facts const& facts, int layers,
                  std::string const& instead) {
  double const rows = facts.microbatches * (10.0 * layers + 4.0 * facts.stages() + 6);
  if (rows > most_rows)
    throw usage_error(fmt::format("{} holds at most {:.0f} ops and this plan has about {:.0f}; {}", flag,
                                  most_rows, rows, instead));
}

phase_replay replay_of(stretto::plan const& of, layer_costs const& costs, int layers) {
  stretto::plan_facts const& facts = of.facts();
  int const least = std::max(2, facts.stages());
  if (layers < least) {
    throw usage_error(
        fmt::format("--layers is {} and --replay phases needs at least {} here: one for every stage, and "
                    "a first and a last",
                    layers, least));
  }
  require_fits("--replay phases", facts, layers,
               "take fewer layers, ranks or microbatches, or --replay chunks");
  auto const shape = [&](int rank) { return shape_of(facts, rank, layers); };
  auto const cost = [&](int, stretto::op_label const& op) { return cost_of(costs, op.phase, op.what); };
  return replay_layers<Step>(of, layers, shape, cost, costs.message);
}

void phase_replay::add_up() {
  for (auto const& rank : times)
    for (stretto::op_times const& one : rank) makespan = std::max(makespan, one.end);
  for (int rank = 0; rank < facts.ranks; ++rank) {
    auto const at = static_cast<std::size_t>(rank);
    rank_time found = rank_time_of(spans(rank), rank, makespan);
    found.peak_live = static_cast<double>(peak_layers(tables[at], facts.microbatches)) * facts.ranks / layers;
    ranks.push_back(found);
    ideal = std::max({ideal, found.compute, found.comm});
    for (op const& row : tables[at].ops) messages += stretto::is_send(row.on);
  }
}

} // namespace plan_program
