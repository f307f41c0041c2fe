#include "trainer.hpp"

#include "gradients.hpp"
#include "model/walk_model.hpp"
#include "optimizer.hpp"
#include "ranks/thread_links.hpp"
#include "run_device.hpp"
#include "run_plan.hpp"
#include "steps/slot_check.hpp"

#include <stretto/adapters/host/group.hpp>
#include <stretto/adapters/torch/threads.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace train_moe {
namespace {

using clock = std::chrono::steady_clock;

double seconds_since(clock::time_point start) {
  return std::chrono::duration<double>(clock::now() - start).count();
}

/// How long lanes look before they sleep. With cores of their own for longer than an op takes: only bubbles are slept through.
std::chrono::microseconds look_of(options const& o) {
  return o.own_cores ? std::chrono::milliseconds(50) : std::chrono::milliseconds(0);
}

/// Enough windows for a loss that is good to about 0.01, in whole microbatches of all ranks.
constexpr int evaluation_windows = 128;
int evaluation_microbatches(options const& o) {
  return (evaluation_windows + o.batch * o.ep - 1) / (o.batch * o.ep);
}
int evaluation_count(options const& o) { return evaluation_microbatches(o) * o.batch * o.ep; }

/// What every rank of a run is told.
struct run_order {
  options const& o;
  policy how;
  corpus const& text;
  stretto::plan const& plan;
};

/// One rank of a training run.
class rank_trainer {
public:
  rank_trainer(run_order const& run, rank_place const& place, rank_links& links)
      : options_(run.o), text_(run.text), facts_(run.plan.facts()), device_(device_of(run.o.model.device)),
        place_(place), shares_process_(links.shares_process()), ranks_(links.all()),
        replicas_(links.replicas()), linked_(links.rows()),
        transport_(device_.make_transport({run.o, run.how, run.plan, place, links})),
        rows_(transport_->rows()), exchange_(rows_, run.o.model.experts / run.o.ep, slots_of(run.o)),
        peers_(transport_->peers()),
        model_(run.o.model, exchange_, parts_of(facts_, place.pipeline_rank(), run.o.model.layers),
               device_.expert_linear()),
        optimizer_(model_.parameters()) {
    model_.step().resize(run.o.model.layers, run.o.microbatches, run.o.ep);
    if (run.o.capacity > 0) model_.step().use_slots(slots_of(run.o), torch_device(run.o.model.device));
    if (run.o.graph && !rows_.capturable())
      throw input_error("--graph: the exchange of rows between --ep " + std::to_string(run.o.ep) +
                        " ranks cannot be captured; leave out --graph, or say --ep 1");
    auto* const together = transport_->shares_capture() ? &ranks_ : nullptr;
    runner_ = device_.make_step(
        run.how, {model_, run.plan, place_, peers_, links.board(), run.o.graph, times_ops(), together,
                  transport_.get(), std::chrono::seconds(run.o.deadline), look_of(run.o), run.o.own_cores});
  }

  /// Rank 0 gets the whole result.
  run_result train(std::function<void(progress const&)> const& report) {
    run_result result;
    std::vector<gradient_hash> hashes;
    double exposed = 0;
    for (int step = 0; step < options_.steps; ++step) {
      load_step(step);
      // All ranks of the process have made their models by then.
      ranks_.barrier();
      std::size_t const before = device_.live_bytes();
      if (counts_memory()) device_.restart_peak();
      ranks_.barrier();
      auto const start = clock::now();
      run_step(exposed);
      ranks_.barrier();
      if (reports()) result.schedule_seconds.push_back(seconds_since(start));
      if (counts_memory()) result.peak_bytes = std::max(result.peak_bytes, device_.peak_bytes() - before);
      if (options_.capacity > 0) check_slots(options_, model_.step().slot_use, step, ranks_);
      auto const loss = mean_loss();
      reduce_replicated(model_.parameters(), replicas_, rows_);
      auto const norm = global_norm(model_.parameters(), ranks_);
      if (!std::isfinite(norm))
        throw std::runtime_error("the gradient of step " + std::to_string(step + 1) +
                                 " is not finite; a smaller --lr may help");
      if (step + 1 == options_.steps) hashes = hash_gradients(model_.parameters(), place_.expert_rank());
      optimizer_.step(learning_rate_at(step, options_.steps, options_.learning_rate),
                      std::min(1.0, options_.clip / norm));
      device_.finish();
      ranks_.barrier();
      if (reports()) note_step(result, loss, seconds_since(start), report);
    }
    result.link_seconds = linked_.modelled_us() * 1e-6;
    collect(result, std::move(hashes), exposed);
    result.held_out_loss = evaluate();
    if (!std::isfinite(result.held_out_loss))
      throw std::runtime_error(
          "the loss of held-out bytes after the last step is not finite; a smaller --lr may help");
    return result;
  }

private:
  bool reports() const { return place_.rank == 0; }
  /// Ops in a graph have no times of their own. On a GPU times cost events around each op, so only who shows them has them.
  bool times_ops() const {
    if (options_.graph) return false;
    return options_.model.device == device_kind::cpu || options_.shows_ops();
  }
  bool counts_memory() const { return !shares_process_ || reports(); }

  void collect(run_result& result, std::vector<gradient_hash> hashes, double exposed) {
    std::string text;
    for (auto const& each : hashes) {
      text.append(each.name).push_back('\n');
      text.append(reinterpret_cast<char const*>(&each.hash), sizeof each.hash);
    }
    std::vector<gradient_hash> all;
    auto const texts = gather_all<char>({text.begin(), text.end()}, ranks_);
    for (std::size_t rank = 0; rank < texts.size(); ++rank)
      for (auto at = texts[rank].begin(); at != texts[rank].end();) {
        auto const end = std::find(at, texts[rank].end(), '\n');
        gradient_hash one{{at, end}, static_cast<int>(rank) % place_.ep, 0};
        std::memcpy(&one.hash, &*end + 1, sizeof one.hash);
        all.push_back(std::move(one));
        at = end + 1 + sizeof one.hash;
      }
    result.gradient_digest = digest_of(std::move(all));

    // Processes count time from a moment of their own; they leave a barrier together.
    ranks_.barrier();
    auto const now = gather_all<double>({device_.now_us()}, ranks_);
    auto const spans = gather_all(runner_->timeline(), ranks_);
    for (std::size_t rank = 0; rank < spans.size(); ++rank) {
      double const shift = shares_process_ ? 0 : now[0][0] - now[rank][0];
      for (auto each : spans[rank]) {
        each.start_us += shift, each.end_us += shift;
        result.last_step.push_back(each);
      }
    }
    for (auto const& each : gather_all<double>({exposed}, ranks_))
      result.exposed_seconds += each[0] / ranks_.ranks();
    for (auto const& each : gather_all<long>({static_cast<long>(::getpid())}, ranks_))
      if (result.process_ids.empty() || result.process_ids.back() != each[0])
        result.process_ids.push_back(each[0]);
    auto const peaks = gather_all<std::size_t>({std::exchange(result.peak_bytes, 0)}, ranks_);
    for (std::size_t process = 0; process < result.process_ids.size(); ++process) {
      result.process_peak_bytes.push_back(peaks[process][0]);
      result.peak_bytes += peaks[process][0];
    }
  }

  template <class Window> void load(int microbatches, Window const& window) {
    auto const tokens = static_cast<std::int64_t>(options_.batch) * options_.model.sequence;
    for (int m = 0; m < microbatches; ++m) {
      token_batch const read{at::empty({tokens}, at::kLong), at::empty({tokens}, at::kLong)};
      auto* ids = read.ids.mutable_data_ptr<std::int64_t>();
      auto* targets = read.targets.mutable_data_ptr<std::int64_t>();
      for (int b = 0; b < options_.batch; ++b) {
        auto const bytes = window(m, place_.expert_rank() * options_.batch + b);
        ids = std::copy(bytes.begin(), bytes.end() - 1, ids);
        targets = std::copy(bytes.begin() + 1, bytes.end(), targets);
      }
      // Always in the same places: a captured step reads them there.
      auto& batch = model_.step().batches[static_cast<std::size_t>(m)];
      auto const place = read.ids.options().device(torch_device(options_.model.device));
      if (!batch.ids.defined()) batch = {at::empty({tokens}, place), at::empty({tokens}, place)};
      batch.ids.copy_(read.ids);
      batch.targets.copy_(read.targets);
    }
  }

  void load_step(int step) {
    load(options_.microbatches, [&](int microbatch, int which) {
      return text_.training(options_.model.seed, step, microbatch, which);
    });
    for (auto const& each : model_.parameters()) each.weight->zero_grad();
    if (options_.capacity > 0) model_.step().slot_use.zero_();
  }

  void run_step(double& exposed) {
    auto const exchanged = rows_.seconds();
    runner_->run();
    if (!times_ops()) {
      exposed = std::numeric_limits<double>::quiet_NaN();
      return;
    }
    auto const ops = runner_->timeline();
    exposed +=
        ops.empty() ? rows_.seconds() - exchanged : stretto::busy_of_rank(ops, place_.rank).exposed_us * 1e-6;
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

  /// With as many rows as there are: what does not fit the slots of a step is no matter here.
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
  bool shares_process_;
  rank_communicator ranks_, replicas_, linked_;
  std::unique_ptr<rank_transport> transport_;
  rank_rows& rows_;
  expert_exchange exchange_;
  stage_peers& peers_;
  language_model model_;
  adam_w optimizer_;
  std::unique_ptr<step_runner> runner_;
};

} // namespace

run_result train(options const& o, policy how, corpus const& text,
                 std::function<void(progress const&)> const& report, processes* others) {
  stretto::torch::use_one_thread();
  auto const plan = plan_of(o, how);
  run_order const order{o, how, text, plan};
  run_result result;
  auto const train_rank = [&](rank_place const& place, rank_links& links) {
    device_of(o.model.device).start_rank(o, place);
    auto found = rank_trainer(order, place, links).train(report);
    if (place.rank == 0) result = std::move(found);
  };
  if (others) {
    train_rank(others->place(), others->links());
  } else {
    stretto::host::group_options settings;
    settings.deadline = std::chrono::seconds(o.deadline);
    settings.link = {.gigabits_per_second = o.link_gbps, .microseconds = o.link_us};
    settings.look = look_of(o);
    // Ranks with GPUs meet before every dispatch, and have a thread each.
    if (o.model.device == device_kind::cuda) settings.look = std::chrono::microseconds(200);
    stretto::host::group group(o.ep * o.pp, settings);
    thread_links::prepare(group, {o.ep, o.pp});
    stage_mailbox mailbox(group);
    group.run([&](int rank) {
      rank_place const place{o.ep, o.pp, rank};
      thread_links links(group, mailbox, place);
      train_rank(place, links);
    });
  }
  result.how = how;
  result.pipeline = plan.facts().name;
  result.bigram_loss = text.bigram_loss(evaluation_count(o));
  return result;
}

} // namespace train_moe
