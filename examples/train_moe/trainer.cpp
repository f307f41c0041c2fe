#include "trainer.hpp"

#include "gradients.hpp"
#include "model/walk_model.hpp"
#include "optimizer.hpp"
#include "run_device.hpp"
#include "run_plan.hpp"
#include "thread_peers.hpp"

#include <stretto/adapters/host/group.hpp>
#include <stretto/adapters/torch/threads.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

namespace train_moe {
namespace {

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point start) {
  return std::chrono::duration<double>(clock::now() - start).count();
}

/// Enough windows for a loss that is good to about 0.01, in whole microbatches of all ranks.
constexpr int evaluation_windows = 128;
int evaluation_microbatches(options const& o) {
  return (evaluation_windows + o.batch * o.ep - 1) / (o.batch * o.ep);
}
int evaluation_count(options const& o) { return evaluation_microbatches(o) * o.batch * o.ep; }

/// What all ranks of a run share.
struct shared_run {
  options const& o;
  policy how;
  corpus const& text;
  stretto::plan const& plan;
  stretto::host::group& group;
  stage_mailbox& mailbox;
};

// Orders of collective calls. Number 0 is there from the start and has all ranks; the expert ranks of each stage have two
// more, one for the lane of a step and one for what comes between steps.
constexpr int of_all = 0;
int of_rows(int stage_rank) { return 1 + 2 * stage_rank; }
int of_replicas(int stage_rank) { return 2 + 2 * stage_rank; }
void add_domains(stretto::host::group& group, rank_place const& grid) {
  for (int stage_rank = 0; stage_rank < grid.pp; ++stage_rank) {
    std::vector<int> members;
    for (int expert_rank = 0; expert_rank < grid.ep; ++expert_rank)
      members.push_back(stage_rank * grid.ep + expert_rank);
    group.add_domain(members);
    group.add_domain(members);
  }
}

/// One rank of a training run.
class rank_trainer {
public:
  rank_trainer(shared_run const& run, rank_place const& place)
      : options_(run.o), text_(run.text), facts_(run.plan.facts()), device_(device_of(run.o.model.device)),
        place_(place), ranks_(run.group.communicator(place.rank, of_all)),
        replicas_(run.group.communicator(place.rank, of_replicas(place.pipeline_rank()))),
        linked_(run.group.communicator(place.rank, of_rows(place.pipeline_rank()))),
        rows_(device_.make_rows(run.how, linked_)),
        exchange_(*rows_, run.o.model.experts / run.o.ep), peers_(run.mailbox, place),
        model_(run.o.model, exchange_, parts_of(facts_, place.pipeline_rank(), run.o.model.layers)),
        optimizer_(model_.parameters()) {
    model_.step().resize(run.o.model.layers, run.o.microbatches, run.o.ep);
    runner_ = device_.make_step(run.how, {model_, run.plan, place_, peers_, run.group.board()});
  }

  void train(run_result& result, std::vector<std::vector<gradient_hash>>& hashes,
             std::vector<std::vector<stretto::span>>& timelines, std::vector<double>& exposed,
             std::function<void(progress const&)> const& report) {
    for (int step = 0; step < options_.steps; ++step) {
      load_step(step);
      std::size_t const before = device_.live_bytes();
      ranks_.barrier();
      if (reports()) device_.restart_peak();
      ranks_.barrier();
      auto const start = clock::now();
      run_step(exposed[index()]);
      ranks_.barrier();
      if (reports()) result.peak_bytes = std::max(result.peak_bytes, device_.peak_bytes() - before);
      auto const loss = mean_loss();
      reduce_replicated(model_.parameters(), replicas_);
      auto const norm = global_norm(model_.parameters(), ranks_);
      if (!std::isfinite(norm))
        throw std::runtime_error("the gradient of step " + std::to_string(step + 1) +
                                 " is not finite; a smaller --lr may help");
      if (step + 1 == options_.steps)
        hashes[index()] = hash_gradients(model_.parameters(), place_.expert_rank());
      optimizer_.step(learning_rate_at(step, options_.steps, options_.learning_rate),
                      std::min(1.0, options_.clip / norm));
      device_.finish();
      ranks_.barrier();
      if (reports()) note_step(result, loss, seconds_since(start), report);
    }
    timelines[index()] = runner_->timeline();
    if (reports()) result.link_seconds = linked_.modelled_us() * 1e-6;
    auto const held_out = evaluate();
    if (reports()) result.held_out_loss = held_out;
  }

private:
  std::size_t index() const { return static_cast<std::size_t>(place_.rank); }
  bool reports() const { return place_.rank == 0; }

  template <class Window> void load(int microbatches, Window const& window) {
    auto const tokens = static_cast<std::int64_t>(options_.batch) * options_.model.sequence;
    for (int m = 0; m < microbatches; ++m) {
      auto& batch = model_.step().batches[static_cast<std::size_t>(m)];
      batch = {at::empty({tokens}, at::kLong), at::empty({tokens}, at::kLong)};
      auto* ids = batch.ids.mutable_data_ptr<std::int64_t>();
      auto* targets = batch.targets.mutable_data_ptr<std::int64_t>();
      for (int b = 0; b < options_.batch; ++b) {
        auto const bytes = window(m, place_.expert_rank() * options_.batch + b);
        ids = std::copy(bytes.begin(), bytes.end() - 1, ids);
        targets = std::copy(bytes.begin() + 1, bytes.end(), targets);
      }
      auto const device = torch_device(options_.model.device);
      batch = {batch.ids.to(device), batch.targets.to(device)};
    }
  }

  void load_step(int step) {
    load(options_.microbatches, [&](int microbatch, int which) {
      return text_.training(options_.model.seed, step, microbatch, which);
    });
    for (auto const& each : model_.parameters()) each.weight->zero_grad();
  }

  void run_step(double& exposed) {
    auto const exchanged = rows_->seconds();
    runner_->run();
    auto const ops = runner_->timeline();
    exposed += ops.empty() ? rows_->seconds() - exchanged
                           : stretto::busy_of_rank(ops, place_.rank).exposed_us * 1e-6;
  }

  /// Over all microbatches and expert ranks, in this order: the same on every rank. The ranks of the last stage have losses.
  double mean_loss() {
    double sum = 0;
    for (auto const& each : model_.step().losses)
      if (each.defined()) sum += each.item<double>();
    std::vector<double> sums(static_cast<std::size_t>(ranks_.ranks()));
    ranks_.all_gather(&sum, 1, sums.data());
    auto const first =
        static_cast<std::size_t>(facts_.owner(facts_.stages() - 1)) * static_cast<std::size_t>(place_.ep);
    double total = 0;
    for (auto const each : std::span(sums).subspan(first, static_cast<std::size_t>(place_.ep))) total += each;
    return total * model_.step().share;
  }

  void note_step(run_result& result, double loss, double seconds,
                 std::function<void(progress const&)> const& report) const {
    result.losses.push_back(loss);
    result.step_seconds.push_back(seconds);
    auto const recent = std::min<std::size_t>(result.step_seconds.size(), 20);
    double sum = 0;
    for (std::size_t i = 0; i < recent; ++i) sum += result.step_seconds[result.step_seconds.size() - 1 - i];
    auto const step_time = sum / static_cast<double>(recent);
    auto const tokens =
        static_cast<double>(options_.ep) * options_.microbatches * options_.batch * options_.model.sequence;
    auto const done = static_cast<int>(result.losses.size());
    report({done, loss, tokens / step_time, step_time * (options_.steps - done)});
  }

  double evaluate() {
    at::NoGradGuard const no_graph;
    auto const microbatches = evaluation_microbatches(options_);
    auto const count = evaluation_count(options_);
    model_.step().resize(options_.model.layers, microbatches, options_.ep);
    load(microbatches, [&](int microbatch, int which) {
      return text_.held_out(microbatch * options_.batch * options_.ep + which, count);
    });
    for (int m = 0; m < microbatches; ++m) walk_stages(m);
    return mean_loss();
  }

  /// Stage by stage, so that all ranks follow one order.
  void walk_stages(int microbatch) {
    at::Tensor between;
    for (int stage = 0; stage < facts_.stages(); ++stage) {
      if (facts_.owner(stage) != place_.pipeline_rank()) continue;
      if (stage > 0 && facts_.owner(stage - 1) != place_.pipeline_rank())
        between = peers_.receive({false, stage - 1, microbatch, 0, facts_.owner(stage - 1)});
      walk_state<language_model::types> state;
      between = walk_chunk(model_, state, between, stretto::chunk_of(facts_.ranks, stage), microbatch);
      if (stage + 1 < facts_.stages() && facts_.owner(stage + 1) != place_.pipeline_rank())
        peers_.send({false, stage, microbatch, 0, facts_.owner(stage + 1)}, between);
    }
  }

  options const& options_;
  corpus const& text_;
  stretto::plan_facts const& facts_;
  run_device const& device_;
  rank_place place_;
  rank_communicator ranks_, replicas_, linked_;
  std::unique_ptr<rank_rows> rows_;
  expert_exchange exchange_;
  thread_peers peers_;
  language_model model_;
  adam_w optimizer_;
  std::unique_ptr<step_runner> runner_;
};

} // namespace

run_result train(options const& o, policy how, corpus const& text,
                 std::function<void(progress const&)> const& report) {
  stretto::torch::use_one_thread();
  auto const plan = plan_of(o, how);
  stretto::host::group_options settings;
  settings.link = {.gigabits_per_second = o.link_gbps, .microseconds = o.link_us};
  rank_place const grid{o.ep, o.pp};
  stretto::host::group group(o.ep * o.pp, settings);
  add_domains(group, grid);
  stage_mailbox mailbox(group);

  run_result result;
  result.how = how;
  result.pipeline = plan.facts().name;
  auto const ranks = static_cast<std::size_t>(group.ranks());
  std::vector<std::vector<gradient_hash>> hashes(ranks);
  std::vector<std::vector<stretto::span>> timelines(ranks);
  std::vector<double> exposed(ranks);
  group.run([&](int rank) {
    device_of(o.model.device).start_rank();
    rank_trainer trainer({o, how, text, plan, group, mailbox}, {o.ep, o.pp, rank});
    trainer.train(result, hashes, timelines, exposed, report);
  });

  std::vector<gradient_hash> all;
  for (auto& of_rank : hashes) std::move(of_rank.begin(), of_rank.end(), std::back_inserter(all));
  result.gradient_digest = digest_of(std::move(all));
  for (auto const& of_rank : timelines)
    result.last_step.insert(result.last_step.end(), of_rank.begin(), of_rank.end());
  for (auto const each : exposed) result.exposed_seconds += each / group.ranks();
  result.bigram_loss = text.bigram_loss(evaluation_count(o));
  return result;
}

} // namespace train_moe
