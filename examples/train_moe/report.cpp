#include "report.hpp"

#include "run_plan.hpp"

#include "../shared/table.hpp"
#include "../shared/words.hpp"

#include <stretto/adapters/host/link_model.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

namespace train_moe {
namespace {

/// 1234567 as `1,234,567`.
std::string grouped(double number) {
  auto text = fmt::format("{:.0f}", number);
  for (auto place = static_cast<std::ptrdiff_t>(text.size()) - 3; place > 0; place -= 3)
    text.insert(static_cast<std::size_t>(place), 1, ',');
  return text;
}

std::string minutes(double seconds) {
  auto const whole = static_cast<long>(std::ceil(seconds));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string mebibytes(std::size_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

/// The first step of a run allocates and warms up.
double median_step(run_result const& run) {
  auto seconds = run.step_seconds;
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  auto const middle = seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  return *middle;
}

double exposed_step(run_result const& run) {
  return run.exposed_seconds / static_cast<double>(run.losses.size());
}

stretto::host::link_model link_of(options const& o) {
  return {.gigabits_per_second = o.link_gbps, .microseconds = o.link_us};
}

/// What a trace says of its run, for who reads it again: all that the times of its ops depend on.
std::vector<std::pair<std::string, std::string>> about_trace(options const& o, run_result const& run) {
  auto const& m = o.model;
  auto const number = [](auto value) { return fmt::format("{}", value); };
  return {{"program", "train_moe"},
          {"policy", name_of(run.how)},
          {"pipeline", run.pipeline},
          {"chunks", number(plan_of(o, run.how).facts().chunks)},
          {"pp", number(o.pp)},
          {"ep", number(o.ep)},
          {"microbatches", number(o.microbatches)},
          {"batch", number(o.batch)},
          {"seq", number(m.sequence)},
          {"layers", number(m.layers)},
          {"dense", number(m.dense)},
          {"hidden", number(m.hidden)},
          {"heads", number(m.heads)},
          {"ffn", number(m.ffn)},
          {"experts", number(m.experts)},
          {"top_k", number(m.top_k)},
          {"shared", number(m.shared)},
          {"capacity", number(o.capacity)},
          {"force_load_balancing", number(int{m.forced_balance})},
          {"device", name_of(m.device)},
          {"attention", name_of_attention(o)},
          {"dtype", name_of(m.type)},
          {"link_gbps", number(o.link_gbps)},
          {"link_us", number(o.link_us)}};
}

/// `dual_pipe_v: 4 pipeline ranks with 2 stages each`
std::string plan_text(stretto::plan_facts const& of) {
  return fmt::format("{}: {} pipeline {} with {} {} each", of.name, of.ranks,
                     of.ranks == 1 ? "rank" : "ranks", of.chunks, of.chunks == 1 ? "stage" : "stages");
}

nlohmann::ordered_json config_of(options const& o) {
  auto const& m = o.model;
  nlohmann::ordered_json config{{"ep", o.ep},
                                {"pp", o.pp},
                                {"microbatches", o.microbatches},
                                {"batch", o.batch},
                                {"steps", o.steps},
                                {"seq", m.sequence},
                                {"layers", m.layers},
                                {"dense", m.dense},
                                {"hidden", m.hidden},
                                {"heads", m.heads},
                                {"ffn", m.ffn},
                                {"experts", m.experts},
                                {"top_k", m.top_k},
                                {"shared", m.shared},
                                {"device", name_of(m.device)},
                                {"comm", m.device == device_kind::cpu ? "host" : name_of(o.transport)},
                                {"dtype", name_of(m.type)},
                                {"seed", m.seed},
                                {"lr", o.learning_rate},
                                {"clip", o.clip},
                                {"aux", m.auxiliary},
                                {"force_load_balancing", m.forced_balance}};
  config["capacity"] = o.capacity > 0 ? nlohmann::ordered_json(o.capacity) : nullptr;
  config["graph"] = o.graph;
  config["attention"] = name_of_attention(o);
  config["own_cores"] = o.own_cores;
  config["comm_ctas"] = o.comm_ctas;
  config["link_gbps"] = o.link_gbps > 0 ? nlohmann::ordered_json(o.link_gbps) : nullptr;
  config["link_us"] = o.link_us > 0 ? nlohmann::ordered_json(o.link_us) : nullptr;
  config["text"] = o.text.string();
  return config;
}

/// Nine significant digits, which tell any two floats apart.
double nine_digits(double value) { return std::strtod(fmt::format("{:.9g}", value).c_str(), nullptr); }

nlohmann::ordered_json json_of(options const& o, run_result const& run) {
  std::vector<double> losses;
  for (auto const each : run.losses) losses.push_back(nine_digits(each));
  return {{"policy", name_of(run.how)},
          {"pipeline", run.pipeline},
          {"chunks", plan_of(o, run.how).facts().chunks},
          {"ranks", o.ep * o.pp},
          {"process_ids", run.process_ids},
          {"config", config_of(o)},
          {"losses", losses},
          {"heldout_loss", nine_digits(run.held_out_loss)},
          {"bigram_loss", nine_digits(run.bigram_loss)},
          {"grad_digest", run.gradient_digest},
          {"step_seconds", run.step_seconds},
          {"schedule_seconds", run.schedule_seconds},
          {"exposed_seconds", run.exposed_seconds},
          {"link_seconds", run.link_seconds},
          {"peak_bytes", run.peak_bytes},
          {"process_peak_bytes", run.process_peak_bytes}};
}

} // namespace

std::string link_text(options const& o) {
  if (o.model.device == device_kind::cuda)
    return o.transport == transport_kind::nccl   ? "GPUs, one a rank, joined by NCCL"
           : o.transport == transport_kind::peer ? "GPUs, rows pushed from one rank's memory to another's"
           : o.transport == transport_kind::none
               ? "GPUs, every rank keeps its rows: what is learned is nothing"
               : "one GPU, rows between ranks through host memory";
  return stretto::host::describe(link_of(o));
}

void print_header(options const& o, corpus const& text) {
  auto const& m = o.model;
  fmt::print("text   {}: {} bytes to train on, {} held out\n", examples::shown_path(o.text.string()),
             grouped(static_cast<double>(text.training_bytes())),
             grouped(static_cast<double>(text.held_out_bytes())));
  fmt::print(
      "model  {} layers ({} dense), width {}, {} heads, {} experts of width {}, top {} and {} shared, {}\n",
      m.layers, m.dense, m.hidden, m.heads, m.experts, m.ffn, m.top_k, m.shared, name_of(m.type));
  fmt::print("run    {} steps of {} bytes: {} {} x {} microbatches x {} sequences of {}; {}\n", o.steps,
             grouped(1.0 * o.ep * o.microbatches * o.batch * m.sequence), o.ep,
             o.pp == 1 ? "ranks" : "expert ranks", o.microbatches, o.batch, m.sequence, link_text(o));
  if (o.capacity > 0)
    fmt::print("slots  {} of every expert for the {} choices of a rank in a microbatch\n", slots_of(o),
               grouped(1.0 * o.batch * m.sequence * m.top_k));
  if (o.pp > 1 || !o.pipeline.empty())
    fmt::print("plan   {}\n", plan_text(plan_of(o, o.compare ? policy::serial : o.how).facts()));
  fmt::print("\n");
  std::fflush(stdout);
}

progress_line::progress_line(policy how, int steps) : how_(how), steps_(steps), terminal_(::isatty(1) == 1) {}

void progress_line::show(progress const& now) {
  auto const tenth = std::max(1, steps_ / 10);
  if (!terminal_ && now.step != 1 && now.step % tenth != 0) return;
  auto line = fmt::format("{:<15}  step {:>{}}/{}  loss {:.4f}  {:>7} tokens/s  {} left", name_of(how_),
                          now.step, std::to_string(steps_).size(), steps_, now.loss,
                          grouped(now.tokens_per_second), minutes(now.seconds_left));
  if (!terminal_) {
    fmt::print("{}\n", line);
  } else {
    auto const width = line.size();
    line.append(width_ > width ? width_ - width : 0, ' ');
    width_ = width;
    fmt::print("\r{}", line);
  }
  std::fflush(stdout);
}

void progress_line::finish(run_result const& result) {
  auto const seconds = std::accumulate(result.step_seconds.begin(), result.step_seconds.end(), 0.0);
  auto line = fmt::format(
      "{:<15}  {} steps in {:.1f} s, loss {:.4f}, held-out {:.4f} (pairs of bytes: {:.4f})", name_of(how_),
      result.losses.size(), seconds, result.losses.back(), result.held_out_loss, result.bigram_loss);
  auto const width = line.size();
  if (terminal_) line.append(width_ > width ? width_ - width : 0, ' ');
  fmt::print("{}{}\n", terminal_ ? "\r" : "", line);
  std::fflush(stdout);
}

std::string comparison_table(std::span<run_result const> runs) {
  auto const serial =
      std::find_if(runs.begin(), runs.end(), [](auto const& run) { return run.how == policy::serial; });
  std::vector<std::vector<std::string>> rows{{"policy", "loss", "held-out", "gradients as serial", "step",
                                              "to serial", "exposed comm", "peak activations"}};
  for (auto const& run : runs) {
    auto const same = run.gradient_digest == serial->gradient_digest && run.losses == serial->losses;
    rows.push_back({name_of(run.how), fmt::format("{:.4f}", run.losses.back()),
                    fmt::format("{:.4f}", run.held_out_loss), same ? "yes" : "no",
                    fmt::format("{:.1f} ms", 1e3 * median_step(run)),
                    fmt::format("{:.3f}", median_step(run) / median_step(*serial)),
                    std::isnan(run.exposed_seconds) ? "-" : fmt::format("{:.1f} ms", 1e3 * exposed_step(run)),
                    mebibytes(run.peak_bytes)});
  }
  return examples::aligned(rows, true);
}

void print_comparison(options const& o, std::span<run_result const> runs) {
  fmt::print("\n{}\n", comparison_table(runs));
  if (o.graph)
    fmt::print(
        "From the second step on every step was one captured graph, whose ops have no times of their own.\n");
  fmt::print("gradients as serial: bit-identical in the last step, and so were the losses of all steps.\n"
             "step: median, with update. exposed comm: communication busy and compute idle, of a step; {}.\n"
             "peak activations: what a step allocates at its peak, all {} ranks together.\n"
             "Counts of pairs of bytes predict the held-out text with {:.4f} nats per byte.\n",
             link_text(o), o.ep * o.pp, runs.front().bigram_loss);
  bool const are_threads = runs.front().process_ids.size() == 1;
  if (o.model.device == device_kind::cpu && are_threads && !link_of(o).present())
    fmt::print(
        "No link is modelled, so ranks exchange rows at the speed of memory and there is little to hide: "
        "--link-gbps X models one.\n");
  if (runs.size() < std::size(all_policies))
    fmt::print("Policies that {} does not go with were left out.\n", runs.front().pipeline);
}

void write_json(std::ostream& out, options const& o, std::span<run_result const> runs) {
  nlohmann::ordered_json all;
  if (!o.compare) {
    all = json_of(o, runs.front());
  } else {
    for (auto const& run : runs) all["runs"].push_back(json_of(o, run));
  }
  // A path may hold bytes that are no UTF-8.
  out << all.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
}

void write_trace(std::ostream& out, options const& o, run_result const& run) {
  stretto::write_chrome_trace(out, run.last_step, fmt::format("{}, {}", name_of(run.how), link_text(o)),
                              about_trace(o, run));
}

} // namespace train_moe
