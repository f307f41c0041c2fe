#include "trainer.hpp"

#include "gradients.hpp"
#include "model/walk_model.hpp"
#include "optimizer.hpp"
#include "run_device.hpp"

#include <stretto/adapters/host/group.hpp>
#include <stretto/adapters/torch/threads.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <stdexcept>

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

/// One rank of a training run.
class rank_trainer {
public:
  rank_trainer(options const& o, policy how, corpus const& text, stretto::host::group& group, int rank)
      : options_(o), how_(how), text_(text), device_(device_of(o.model.device)), rank_(rank),
        ranks_(group.communicator(rank, 1)), linked_(group.communicator(rank, 0)), rows_(device_.make_rows(how, linked_)),
        exchange_(*rows_, o.model.experts / o.ep), model_(o.model, exchange_),
        optimizer_(model_.parameters()) {
    model_.step().resize(o.model.layers, o.microbatches, o.ep);
    runner_ = how == policy::autograd ? make_autograd_step(model_)
                                      : device_.make_step(how, model_, rank, group.board());
  }

  void train(run_result& result, std::vector<std::vector<gradient_hash>>& hashes,
             std::vector<std::vector<stretto::span>>& timelines, std::vector<double>& exposed,
             std::function<void(progress const&)> const& report) {
    for (int step = 0; step < options_.steps; ++step) {
      load_step(step);
      std::size_t const before = device_.live_bytes();
      ranks_.barrier();
      if (rank_ == 0) device_.restart_peak();
      ranks_.barrier();
      auto const start = clock::now();
      run_step(exposed[index()]);
      ranks_.barrier();
      if (rank_ == 0) result.peak_bytes = std::max(result.peak_bytes, device_.peak_bytes() - before);
      auto const loss = mean_loss();
      reduce_replicated(model_.parameters(), ranks_);
      auto const norm = global_norm(model_.parameters(), ranks_);
      if (!std::isfinite(norm))
        throw std::runtime_error("the gradient of step " + std::to_string(step + 1) +
                                 " is not finite; a smaller --lr may help");
      if (step + 1 == options_.steps) hashes[index()] = hash_gradients(model_.parameters(), rank_);
      optimizer_.step(learning_rate_at(step, options_.steps, options_.learning_rate),
                      std::min(1.0, options_.clip / norm));
      device_.finish();
      ranks_.barrier();
      if (rank_ == 0) note_step(result, loss, seconds_since(start), report);
    }
    timelines[index()] = runner_->timeline();
    if (rank_ == 0) result.link_seconds = linked_.modelled_us() * 1e-6;
    auto const held_out = evaluate();
    if (rank_ == 0) {
      result.held_out_loss = held_out;
      result.pipeline = runner_->pipeline();
    }
  }

private:
  std::size_t index() const { return static_cast<std::size_t>(rank_); }

  template <class Window> void load(int microbatches, Window const& window) {
    auto const tokens = static_cast<std::int64_t>(options_.batch) * options_.model.sequence;
    for (int m = 0; m < microbatches; ++m) {
      auto& batch = model_.step().batches[static_cast<std::size_t>(m)];
      batch = {at::empty({tokens}, at::kLong), at::empty({tokens}, at::kLong)};
      auto* ids = batch.ids.mutable_data_ptr<std::int64_t>();
      auto* targets = batch.targets.mutable_data_ptr<std::int64_t>();
      for (int b = 0; b < options_.batch; ++b) {
        auto const bytes = window(m, rank_ * options_.batch + b);
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
    exposed +=
        ops.empty() ? rows_->seconds() - exchanged : stretto::busy_of_rank(ops, rank_).exposed_us * 1e-6;
  }

  /// Over all microbatches and ranks, in this order: the same on every rank.
  double mean_loss() {
    double sum = 0;
    for (auto const& each : model_.step().losses) sum += each.item<double>();
    std::vector<double> sums(static_cast<std::size_t>(options_.ep));
    ranks_.all_gather(&sum, 1, sums.data());
    double total = 0;
    for (auto const each : sums) total += each;
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
    for (int m = 0; m < microbatches; ++m) {
      walk_state<language_model::types> state;
      walk_model(model_, state, m);
    }
    return mean_loss();
  }

  options const& options_;
  policy how_;
  corpus const& text_;
  run_device const& device_;
  int rank_;
  rank_communicator ranks_;
  stretto::host::communicator linked_;
  std::unique_ptr<rank_rows> rows_;
  expert_exchange exchange_;
  language_model model_;
  adam_w optimizer_;
  std::unique_ptr<step_runner> runner_;
};

} // namespace

run_result train(options const& o, policy how, corpus const& text,
                 std::function<void(progress const&)> const& report) {
  stretto::torch::use_one_thread();
  stretto::host::group_options settings;
  settings.link = {.gigabits_per_second = o.link_gbps, .microseconds = o.link_us};
  stretto::host::group group(o.ep, settings);
  group.add_domain();

  run_result result;
  result.how = how;
  auto const ranks = static_cast<std::size_t>(o.ep);
  std::vector<std::vector<gradient_hash>> hashes(ranks);
  std::vector<std::vector<stretto::span>> timelines(ranks);
  std::vector<double> exposed(ranks);
  group.run([&](int rank) {
    device_of(o.model.device).start_rank();
    rank_trainer trainer(o, how, text, group, rank);
    trainer.train(result, hashes, timelines, exposed, report);
  });

  std::vector<gradient_hash> all;
  for (auto& of_rank : hashes) std::move(of_rank.begin(), of_rank.end(), std::back_inserter(all));
  result.gradient_digest = digest_of(std::move(all));
  for (auto const& of_rank : timelines)
    result.last_step.insert(result.last_step.end(), of_rank.begin(), of_rank.end());
  for (auto const each : exposed) result.exposed_seconds += each / o.ep;
  result.bigram_loss = text.bigram_loss(evaluation_count(o));
  return result;
}

} // namespace train_moe
