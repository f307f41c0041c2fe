#include "measured.hpp"

#include "draw.hpp"
#include "layer_types.hpp"
#include "usage.hpp"

#include <stretto/pipelines/all.hpp>
#include <stretto/plan/error.hpp>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include <fmt/core.h>

namespace plan_program {

namespace {

// As train_moe has them: the pipeline here says only that there are bodies of pairs and of halves.
struct SerialStep : stretto::Schedule<MixedModel, stretto::Serial, stretto::DualPipeV> {};
struct TwoStreamStep : stretto::Schedule<MixedModel, stretto::TwoStream1F1B, stretto::DualPipeV> {};
struct SplitStep
    : stretto::Schedule<MixedModel, stretto::TwoStream1F1B, stretto::SplitDW, stretto::DualPipeV> {};

/// In milliseconds; no clock of a trace can tell such a step from one that takes no time.
constexpr double shortest_step = 1e-6;

std::string no_time(char const* flag, recorded_step const& run) {
  return fmt::format("{}: the ops in '{}' take no time; trace that run again", flag, run.path);
}

/// Numbers of the block types of `MixedModel`.
constexpr int moe = 0, dense = 1, embedding = 2, head = 3;

/// The layers of one rank: their block types chunk by chunk, and where each stands in the model, the embedding first.
struct rank_layers {
  std::vector<std::vector<int>> types;
  std::vector<int> place, chunk;
};

rank_layers layers_of(stretto::plan_facts const& facts, int rank, int layers, int dense_layers) {
  rank_layers found;
  auto const add = [&](int type, int place) {
    found.types.back().push_back(type), found.place.push_back(place);
    found.chunk.push_back(static_cast<int>(found.types.size()) - 1);
  };
  for (int chunk = 0; chunk < facts.chunks; ++chunk) {
    int const stage = facts.stage(rank, chunk);
    found.types.emplace_back();
    if (stage == 0) add(embedding, 0);
    for (int layer = facts.first_layer(layers, stage); layer < facts.first_layer(layers, stage + 1); ++layer)
      add(layer < dense_layers ? dense : moe, layer + 1);
    if (stage == facts.stages() - 1) add(head, layers + 1);
  }
  return found;
}

stretto::plan plan_of(recorded_step const& run) {
  std::optional<stretto::plan> made;
  try {
    stretto::shipped_pipelines::with(run.text("pipeline").c_str(), [&]<class Pipeline>() {
      bool const takes_chunks = stretto::most_chunks<Pipeline>() != Pipeline::chunks;
      made.emplace(stretto::proved_plan<Pipeline>(run.number("pp"), run.number("microbatches"),
                                                  takes_chunks ? run.number("chunks") : 0));
    });
  } catch (std::invalid_argument const&) {
    made.reset();
  }
  if (!made || made->facts().chunks != run.number("chunks"))
    throw usage_error(
        fmt::format("--measured: '{}' says {}, {}, {}, {}, which is no plan; trace the step again", run.path,
                    run.text("pipeline"), counted(run.number("pp"), "rank", "ranks"),
                    counted(run.number("microbatches"), "microbatch", "microbatches"),
                    counted(run.number("chunks"), "chunk", "chunks")));
  return std::move(*made);
}

/// What one op costs, by what it is and where in the model: on each pipeline rank what it took in that rank's serial run, or on all
/// of them what it took in the only one.
class op_costs {
public:
  /// The means over microbatches and expert ranks: what ops take adds up to what a run took.
  op_costs(recorded_step const& serial, int pipeline_ranks, int expert_ranks) : path_(serial.path) {
    int ranks = 0;
    for (stretto::span const& each : serial.ops) ranks = std::max(ranks, each.rank + 1);
    if (ranks != expert_ranks && ranks != pipeline_ranks * expert_ranks)
      throw usage_error(fmt::format(
          "--costs: '{}' has ops of {}; a step of {} and {} takes one serial run, of {}, or one for each "
          "pipeline rank, of {} together",
          path_, counted(ranks, "rank", "ranks"), counted(pipeline_ranks, "pipeline rank", "pipeline ranks"),
          counted(expert_ranks, "expert rank", "expert ranks"), expert_ranks, pipeline_ranks * expert_ranks));
    runs_ = ranks / expert_ranks;
    std::map<key, int> counts;
    auto const key_of = [&](stretto::span const& each) {
      return key{each.rank / expert_ranks, each.label.layer, each.label.phase, each.label.what};
    };
    for (stretto::span const& each : serial.ops) ++counts[key_of(each)];
    for (stretto::span const& each : serial.ops)
      costs_[key_of(each)] += (each.end_us - each.start_us) / counts[key_of(each)];
  }

  int runs() const { return runs_; }

  double operator()(int pipeline_rank, int place, stretto::op_label const& op) const {
    int const run = runs_ == 1 ? 0 : pipeline_rank;
    if (auto const found = costs_.find({run, place, op.phase, op.what}); found != costs_.end())
      return found->second;
    if (op.what == stretto::pass::backward) {
      auto const input = costs_.find({run, place, op.phase, stretto::pass::backward_input});
      auto const weight = costs_.find({run, place, op.phase, stretto::pass::backward_weight});
      if (input != costs_.end() && weight != costs_.end()) return input->second + weight->second;
    }
    bool const half = op.what == stretto::pass::backward_input || op.what == stretto::pass::backward_weight;
    throw usage_error(fmt::format("--costs: '{}' has no time of {}.{} of layer {}{}{}", path_,
                                  stretto::letter_of(op.what), stretto::name_of(op.phase), place,
                                  runs_ == 1 ? "" : fmt::format(" in the run of pipeline rank {}", run),
                                  half ? ", since its backward is whole; trace --policy serial --pipeline "
                                         "zero_bubble_h1 --pp 1, which splits it"
                                       : "; trace a serial run of the same model"));
  }

private:
  using key = std::tuple<int, int, stretto::phase_kind, stretto::pass>; // the first is which run
  std::string path_;
  int runs_ = 1;
  std::map<key, double> costs_;
};

/// The first two ops of one rank that ran at the same time, in the order in which they began, or null.
std::pair<stretto::span const*, stretto::span const*> beside_each_other(recorded_step const& run) {
  constexpr double resolution = 0.002; // of the clocks of traces, in milliseconds
  std::map<int, std::vector<stretto::span const*>> of_rank;
  for (stretto::span const& each : run.ops) of_rank[each.rank].push_back(&each);
  for (auto& [rank, ops] : of_rank) {
    std::stable_sort(ops.begin(), ops.end(),
                     [](auto const* a, auto const* b) { return a->start_us < b->start_us; });
    for (std::size_t next = 1; next < ops.size(); ++next)
      if (ops[next]->start_us + resolution < ops[next - 1]->end_us) return {ops[next - 1], ops[next]};
  }
  return {};
}

/// A run of the same model in which a rank ran one op at a time. With the policy of `trace` its communication is on a lane of
/// its own too, where rows are further away than on the lane that computes.
void require_serial(recorded_step const& trace, recorded_step const& costs) {
  constexpr char const* instead =
      "ops that run beside others say little about their costs; trace --policy serial --pp 1";
  auto const policy = costs.text("policy");
  if (policy != "serial" && policy != trace.text("policy"))
    throw usage_error(
        fmt::format("--costs: '{}' ran with --policy {} and '{}' with {}; trace --policy serial --pp 1",
                    costs.path, policy, trace.path, trace.text("policy")));
  if (costs.text("pp") != "1")
    throw usage_error(
        fmt::format("--costs: '{}' ran with --pp {}, and {}", costs.path, costs.text("pp"), instead));
  if (auto const [one, other] = beside_each_other(costs); one)
    throw usage_error(fmt::format("--costs: '{}' ran {} beside {}, and {}", costs.path,
                                  stretto::short_name(other->label), stretto::short_name(one->label),
                                  instead));
  std::set<std::string> keys;
  for (auto const* const run : {&trace, &costs})
    for (auto const& [key, value] : run->about) keys.insert(key);
  // What may differ; all else changes the work of an op.
  for (char const* const key : {"note", "policy", "pipeline", "chunks", "pp", "microbatches"})
    keys.erase(key);
  auto const said = [](recorded_step const& run, std::string const& key) {
    auto const found = run.about.find(key);
    return found == run.about.end() ? "0" : found->second;
  };
  for (std::string const& key : keys)
    if (said(trace, key) != said(costs, key))
      throw usage_error(
          fmt::format("--costs: '{}' ran with {} {} and '{}' with {}; trace both with the same model",
                      costs.path, shown(key), said(costs, key), trace.path, said(trace, key)));
}

/// What each op of the step itself took: the mean over its expert ranks.
class own_times {
public:
  explicit own_times(recorded_step const& trace) {
    int const expert_ranks = trace.number("ep");
    for (stretto::span const& each : trace.ops)
      times_[key_of(each.rank / expert_ranks, each.label)] += (each.end_us - each.start_us) / expert_ranks;
  }
  double operator()(int rank, stretto::op_label const& op) const { return times_.at(key_of(rank, op)); }

private:
  using key = std::tuple<int, stretto::phase_kind, stretto::pass, int, int>;
  static key key_of(int rank, stretto::op_label const& op) {
    return {rank, op.phase, op.what, op.layer, op.microbatch};
  }
  std::map<key, double> times_;
};

/// `costs(rank, place of its layer in the model, op)` is what an op takes.
template <class Costs>
phase_replay replay_of(stretto::plan const& plan, recorded_step const& trace, Costs const& costs) {
  std::vector<rank_layers> layers;
  for (int rank = 0; rank < plan.facts().ranks; ++rank)
    layers.push_back(layers_of(plan.facts(), rank, trace.number("layers"), trace.number("dense")));
  auto const shape = [&](int rank) {
    return stretto::layer_shape(layers[static_cast<std::size_t>(rank)].types);
  };
  auto const cost = [&](int rank, stretto::op_label const& op) {
    auto const& place = layers[static_cast<std::size_t>(rank)].place;
    return costs(rank, place[static_cast<std::size_t>(op.layer)], op);
  };
  auto const with = [&]<class S>(S) {
    return replay_layers<S>(plan, trace.number("layers"), shape, cost, 0);
  };
  if (trace.text("policy") == "serial") return with(SerialStep{});
  if (trace.text("policy") == "two_stream_1f1b") return with(TwoStreamStep{});
  if (trace.text("policy") == "split_dw") return with(SplitStep{});
  throw usage_error(
      fmt::format("--measured: '{}' ran with --policy {}, which has no ops; trace another policy", trace.path,
                  trace.text("policy")));
}

/// What ran on `rank` of the run must be the rows of `pipeline_rank`, lane by lane.
void require_same_ops(phase_replay const& predicted, int pipeline_rank, recorded_step const& trace,
                      int rank) {
  auto const row = [](stretto::op_label const& op) {
    return std::tuple(op.on, op.what, op.phase, op.layer, op.microbatch);
  };
  std::vector<stretto::op_label> planned, ran;
  for (stretto::span const& each : predicted.spans(pipeline_rank))
    if (!stretto::is_message(each.label)) planned.push_back(each.label);
  std::stable_sort(planned.begin(), planned.end(), [](auto const& a, auto const& b) { return a.on < b.on; });
  for (stretto::span const& each : trace.ops)
    if (each.rank == rank) ran.push_back(each.label);
  auto const [one, other] = std::mismatch(planned.begin(), planned.end(), ran.begin(), ran.end(),
                                          [&](auto const& a, auto const& b) { return row(a) == row(b); });
  if (one == planned.end() && other == ran.end()) return;
  throw usage_error(fmt::format("--measured: rank {} of '{}' ran {} where its plan has {}; trace the step "
                                "again with the build that draws it",
                                rank, trace.path,
                                other == ran.end() ? "nothing" : stretto::short_name(*other),
                                one == planned.end() ? "nothing" : stretto::short_name(*one)));
}

} // namespace

std::string measured_step::title() const {
  return fmt::format("{}, {}, {}{}{}", title_of(predicted.facts), policy,
                     counted(predicted.layers, "layer", "layers"),
                     dense > 0 ? fmt::format(" ({} dense)", dense) : "",
                     expert_ranks > 1 ? fmt::format(", {} expert ranks", expert_ranks) : "");
}

std::string measured_step::method() const {
  return fmt::format("predicted: ops cost what they took in {} of {}, messages nothing\n"
                     "measured:  the step of {}\n",
                     serial_runs == 1 ? "the serial run" : "the serial runs, one for each rank,", costs,
                     trace);
}

measured_step compare_with_run(recorded_step const& trace, recorded_step const& costs) {
  require_serial(trace, costs);
  stretto::plan const plan = plan_of(trace);
  stretto::plan_facts const& facts = plan.facts();
  require_fits("--measured", facts, trace.number("layers"), "trace a smaller step");
  measured_step step;
  op_costs const serial(costs, facts.ranks, trace.number("ep"));
  step.predicted = replay_of(plan, trace, serial);
  if (!(step.predicted.makespan > shortest_step)) throw usage_error(no_time("--costs", costs));
  step.serial_runs = serial.runs();
  step.policy = trace.text("policy"), step.trace = trace.path, step.costs = costs.path;
  step.expert_ranks = trace.number("ep"), step.dense = trace.number("dense");
  double first = trace.ops.front().start_us, last = first;
  for (stretto::span const& each : trace.ops) {
    first = std::min(first, each.start_us), last = std::max(last, each.end_us);
    if (each.rank >= facts.ranks * step.expert_ranks)
      throw usage_error(fmt::format("--measured: '{}' has ops of rank {} and is of {}; trace the step again",
                                    trace.path, each.rank,
                                    counted(facts.ranks * step.expert_ranks, "rank", "ranks")));
  }
  step.makespan = last - first;
  if (!(step.makespan > shortest_step)) throw usage_error(no_time("--measured", trace));
  for (int rank = 0; rank < facts.ranks; ++rank) {
    rank_time mean;
    for (int expert_rank = 0; expert_rank < step.expert_ranks; ++expert_rank) {
      int const in_run = rank * step.expert_ranks + expert_rank;
      require_same_ops(step.predicted, rank, trace, in_run);
      rank_time const one = rank_time_of(trace.ops, in_run, step.makespan);
      for (auto const which :
           {&rank_time::compute, &rank_time::comm, &rank_time::exposed, &rank_time::bubble})
        mean.*which += one.*which / step.expert_ranks;
    }
    step.ranks.push_back(mean);
    step.layer_chunk.push_back(layers_of(facts, rank, step.predicted.layers, step.dense).chunk);
  }
  own_times const own(trace);
  step.of_own_ops = replay_of(plan, trace, [&](int rank, int, stretto::op_label const& op) {
                      return own(rank, op);
                    }).makespan;
  for (stretto::span each : trace.ops) {
    if (each.rank % step.expert_ranks != 0) continue;
    each.rank /= step.expert_ranks, each.start_us -= first, each.end_us -= first;
    step.ops.push_back(each);
  }
  return step;
}

} // namespace plan_program
