#include "options.hpp"

#include "run_plan.hpp"

#include "../shared/flag_words.hpp"
#include "../shared/schedule_names.hpp"
#include "../shared/words.hpp"

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <system_error>
#include <utility>

namespace train_moe {
namespace {

/// A flag's text as given, with what is needed to turn it into a value or into a sentence.
class flag_values {
public:
  explicit flag_values(CLI::App& app) : app_(app) {}

  void add(char const* name, char const* type, std::string shown_default, std::string meaning) {
    auto* option = app_.add_option(name, texts_[name], std::move(meaning))->type_name(type);
    if (!shown_default.empty()) option->default_str(std::move(shown_default));
  }
  bool given(char const* name) const { return app_.count(name) > 0; }
  std::string const& text(char const* name) const { return texts_.at(name); }

  void read(char const* name, int& value, int least, int most) const {
    long long wide = value;
    read_whole(name, wide, least, most);
    value = static_cast<int>(wide);
  }
  void read_whole(char const* name, long long& value, long long least, long long most) const {
    if (!given(name)) return;
    auto const& digits = text(name);
    auto const* end = digits.data() + digits.size();
    auto const [stop, problem] = std::from_chars(digits.data(), end, value);
    if (problem != std::errc{} || stop != end || value < least || value > most)
      throw input_error(fmt::format("{} must be a whole number from {} to {}, not '{}'", name, least, most,
                                    examples::shown(digits)));
  }
  /// `above`: the value must be greater than `least`, not just as great.
  void read(char const* name, double& value, double least, double most, bool above) const {
    if (!given(name)) return;
    auto const& digits = text(name);
    auto const* end = digits.data() + digits.size();
    auto const [stop, problem] = std::from_chars(digits.data(), end, value);
    if (problem != std::errc{} || stop != end || !std::isfinite(value) || value > most ||
        (above ? value <= least : value < least))
      throw input_error(fmt::format("{} must be a number {} {} and at most {}, not '{}'", name,
                                    above ? "above" : "of at least", least, most, examples::shown(digits)));
  }
  std::size_t read_choice(char const* name, std::vector<std::string> const& choices,
                          std::size_t otherwise) const {
    if (!given(name)) return otherwise;
    auto const& word = text(name);
    for (std::size_t i = 0; i < choices.size(); ++i)
      if (choices[i] == word) return i;
    auto const near = examples::nearest(word, choices);
    throw input_error(fmt::format("{} knows {}, not '{}'{}", name, examples::listed(choices),
                                  examples::shown(word),
                                  near.empty() ? "" : fmt::format("; did you mean {}?", near)));
  }
  std::size_t read_schedule(char const* name, std::vector<std::string> const& known, std::size_t otherwise) {
    if (given(name)) texts_[name] = examples::schedule_name(text(name), known);
    return read_choice(name, known, otherwise);
  }

private:
  CLI::App& app_;
  std::map<std::string, std::string> texts_;
};

void check_together(options const& o) {
  auto const& m = o.model;
  if (m.dense > m.layers)
    throw input_error(fmt::format("--dense {} is more than there are layers; make it at most --layers {}",
                                  m.dense, m.layers));
  if (m.hidden % m.heads != 0)
    throw input_error(fmt::format("--hidden {} is no multiple of --heads {}; every head has the same width",
                                  m.hidden, m.heads));
  if (m.hidden / m.heads % 2 != 0)
    throw input_error(
        fmt::format("--hidden {} with --heads {} makes heads of odd width {}; rotary positions turn "
                    "pairs of channels, so make it even",
                    m.hidden, m.heads, m.hidden / m.heads));
  if (m.top_k > m.experts)
    throw input_error(fmt::format("--top-k {} is more than there are experts; make it at most --experts {}",
                                  m.top_k, m.experts));
  if (m.experts % o.ep != 0)
    throw input_error(
        fmt::format("--experts {} is no multiple of --ep {}; every rank holds the same number of experts",
                    m.experts, o.ep));
  constexpr int most_ranks = 256;
  if (o.ep * o.pp > most_ranks)
    throw input_error(
        fmt::format("--ep {} times --pp {} is {} ranks, and a run has at most {}; lower one of them", o.ep,
                    o.pp, o.ep * o.pp, most_ranks));
  if (o.own_cores && m.device == device_kind::cuda)
    throw input_error("--own-cores is for ranks that compute on cores; leave it out with --device cuda");
  // Refuses what the pipeline cannot serve.
  plan_of(o, o.compare ? policy::serial : o.how);
}

/// However the two are spelled, and whether or not they exist.
bool is_same_file(std::filesystem::path const& a, std::filesystem::path const& b) {
  std::error_code problem;
  if (std::filesystem::equivalent(a, b, problem)) return true;
  return std::filesystem::weakly_canonical(a, problem) == std::filesystem::weakly_canonical(b, problem);
}

/// Files that are written, and what may be in them.
void check_outputs(options const& o) {
  std::pair<char const*, std::filesystem::path const&> const files[] = {
      {"--json", o.json}, {"--trace", o.trace}, {"--svg", o.svg}};
  for (auto const& [name, path] : files) {
    if (path.empty()) continue;
    if (&path != &o.json) {
      if (o.graph)
        throw input_error(
            fmt::format("--graph has no times of single ops, which {} shows; leave out one of them", name));
      if (o.compare) throw input_error(fmt::format("{} shows one policy; leave out --compare", name));
      if (o.how == policy::autograd)
        throw input_error(fmt::format(
            "{} shows the ops of a schedule and --policy autograd has none; choose another policy", name));
    }
    for (auto const& [other, there] : files) {
      if (&there == &path) break;
      if (!there.empty() && is_same_file(there, path))
        throw input_error(fmt::format("{} and {} name the same file; give them two names", other, name));
    }
    if (is_same_file(path, o.text))
      throw input_error(
          fmt::format("{} names the text itself, which it would overwrite; name another file", name));
  }
  constexpr double most_ops = 40000;
  double const ops = 10.0 * o.ep * o.microbatches * (o.model.layers + 1);
  if (!o.svg.empty() && ops > most_ops)
    throw input_error(
        fmt::format("--svg draws at most {:.0f} ops and a step of this run has about {:.0f}; say "
                    "--trace, or lower --microbatches, --layers or --ep",
                    most_ops, ops));
}

void add_flags(flag_values& flags, CLI::App& app, options& o) {
  auto const& m = o.model;
  auto const number = [](auto value) { return fmt::format("{}", value); };
  flags.add("--text", "PATH", "", "The file, or the folder with all files below it, to train on (required)");
  flags.add("--policy", "NAME", name_of(o.how),
            "How forward and backward are scheduled: serial, two_stream_1f1b, split_dw, or autograd (no "
            "schedule: one ordinary graph for a microbatch)");
  app.add_flag("--compare", o.compare,
               "Train with every policy that the pipeline goes with from the same start and print a table");
  flags.add("--ep", "N", number(o.ep),
            "Ranks that share the experts: threads of this process, or processes (see examples/launch.sh)");
  flags.add("--pp", "N", number(o.pp),
            "Pipeline ranks, each with --ep ranks: every one has some of the layers");
  flags.add(
      "--pipeline", "NAME", "",
      fmt::format("Which microbatch a pipeline rank runs when: {} (without it serial, or one_f_one_b_ep for "
                  "policies that overlap); also {}",
                  examples::listed(pipeline_names()), examples::other_schedule_names()));
  flags.add("--chunks", "V", "",
            "Chunks of layers on a pipeline rank, for interleaved and interleaved_ep (2)");
  flags.add("--microbatches", "M", number(o.microbatches), "Microbatches in a step");
  flags.add("--steps", "S", number(o.steps), "Steps");
  flags.add("--batch", "B", number(o.batch), "Sequences in a microbatch of one rank");
  flags.add("--seq", "T", number(m.sequence), "Bytes in a sequence");
  flags.add("--layers", "L", number(m.layers), "Layers");
  flags.add("--dense", "D", number(m.dense), "The first D layers are dense");
  flags.add("--hidden", "H", number(m.hidden), "Width of the model");
  flags.add("--heads", "A", number(m.heads), "Attention heads");
  flags.add("--ffn", "F", number(m.ffn), "Inner width of one expert");
  flags.add("--experts", "E", number(m.experts), "Routed experts");
  flags.add("--top-k", "K", number(m.top_k), "Routed experts that a byte visits");
  flags.add("--shared", "S", number(m.shared), "Shared experts, which every byte visits");
  flags.add("--device", "NAME", "cpu", "cpu, or cuda: GPUs");
  flags.add("--comm", "NAME", "",
            "How ranks on GPUs reach each other: staged, threads on one GPU through host memory; peer, "
            "threads on all GPUs, or processes, that push into each other's memory; nccl, one GPU a rank; or "
            "none: threads "
            "on all GPUs that keep their rows and learn nothing, in the time of a step without communication "
            "(without it "
            "staged for threads, nccl for processes)");
  flags.add("--capacity", "X", "",
            "Give every expert the same number of slots for the rows of a rank, X times as many as it would "
            "need if all were chosen equally often: no counts are exchanged, and rows that do not fit end "
            "the run (--experts / --top-k always suffices). Without it: as many rows as there are");
  app.add_flag("--graph", o.graph,
               "With --device cuda and --capacity: capture the second step as one CUDA graph and replay it "
               "in all later ones");
  flags.add("--attention", "NAME", "repeatable",
            "With --device cuda: repeatable, or fast: gradients of long sequences are summed in any order, "
            "in less time and more memory, and no two runs give the same bits");
  flags.add("--comm-ctas", "N", "",
            "With --comm nccl: multiprocessors that rows may take, a power of two; matrix products are told "
            "to take the others");
  flags.add("--dtype", "TYPE", "f32", "What the model computes in: f32, or bf16 with f32 master weights");
  flags.add("--seed", "X", number(m.seed), "Of initial weights and data order");
  flags.add("--lr", "X", number(o.learning_rate), "Highest learning rate");
  flags.add("--clip", "X", number(o.clip), "Largest norm of the gradient");
  flags.add("--aux", "X", number(m.auxiliary), "Weight of the load-balancing loss");
  app.add_flag(
      "--force-load-balancing", o.model.forced_balance,
      "For benchmarks: route by random numbers, the same on every rank, in place of the router's, so that "
      "all experts have about as many rows; what is learned means little then");
  flags.add("--link-gbps", "X", "", "Model a link of this bandwidth between expert ranks");
  flags.add("--link-us", "X", "", "Model a link of this latency between expert ranks");
  app.add_flag(
      "--own-cores", o.own_cores,
      "Ranks that are threads: each keeps to its share of the cores, two at least, of which compute has "
      "one to itself, and waits awake for the next op. For a machine without other work");
  flags.add("--deadline", "SECONDS", number(o.deadline),
            "How long a rank waits for others, while no rank goes on, before it gives up");
  flags.add("--json", "FILE", "", "Write the results here");
  flags.add("--trace", "FILE", "", "Write a Chrome trace of the last step here, for ui.perfetto.dev");
  flags.add("--svg", "FILE", "", "Draw the last step here: the ops of every rank over time");
}

void read_sizes(flag_values const& flags, options& o) {
  auto& m = o.model;
  constexpr int many = 1 << 16;
  flags.read("--ep", o.ep, 1, 64);
  flags.read("--pp", o.pp, 1, 64);
  flags.read("--chunks", o.chunks, 1, 64);
  flags.read("--microbatches", o.microbatches, 1, 1024);
  flags.read("--steps", o.steps, 1, 1'000'000);
  flags.read("--batch", o.batch, 1, 4096);
  flags.read("--seq", m.sequence, 2, many);
  flags.read("--layers", m.layers, 1, 1000);
  flags.read("--dense", m.dense, 0, 1000);
  flags.read("--hidden", m.hidden, 2, many);
  flags.read("--heads", m.heads, 1, many);
  flags.read("--ffn", m.ffn, 1, many);
  flags.read("--experts", m.experts, 1, 4096);
  flags.read("--top-k", m.top_k, 1, 4096);
  flags.read("--shared", m.shared, 0, 64);
  long long seed = 1;
  flags.read_whole("--seed", seed, 0, std::numeric_limits<long long>::max());
  m.seed = static_cast<std::uint64_t>(seed);
  flags.read("--deadline", o.deadline, 1, 86400);
  flags.read("--comm-ctas", o.comm_ctas, 1, 64);
  flags.read("--lr", o.learning_rate, 0, 10, true);
  flags.read("--clip", o.clip, 0, 1e9, true);
  flags.read("--aux", m.auxiliary, 0, 1e3, false);
  flags.read("--capacity", o.capacity, 0, 4096, true);
  flags.read("--link-gbps", o.link_gbps, 1e-3, 1e6, false);
  flags.read("--link-us", o.link_us, 0, 1e6, false);
}

/// Where a run computes, how its ranks reach each other there, and what goes with that.
void read_device(flag_values const& flags, options& o) {
  auto& m = o.model;
  if (flags.read_choice("--device", {"cpu", "cuda"}, 0) == 1) {
    m.device = device_kind::cuda;
    for (auto const* name : {"--link-gbps", "--link-us"})
      if (flags.given(name))
        throw input_error(
            fmt::format("{} models a link between ranks on the CPU, and --device cuda has a real one; leave "
                        "out one of them",
                        name));
  }
  if (flags.given("--comm")) {
    constexpr transport_kind kinds[] = {transport_kind::staged, transport_kind::peer, transport_kind::nccl,
                                        transport_kind::none};
    std::vector<std::string> names;
    for (auto const each : kinds) names.emplace_back(name_of(each));
    o.transport = kinds[flags.read_choice("--comm", names, 0)];
    if (m.device != device_kind::cuda)
      throw input_error(
          "--comm says how ranks on GPUs reach each other, and there are none on the CPU; leave it out, or "
          "say --device cuda");
  }
  o.repeatable = flags.read_choice("--attention", {"repeatable", "fast"}, 0) == 0;
  if (!o.repeatable && m.device != device_kind::cuda)
    throw input_error("--attention fast is for GPUs; say --device cuda, or leave it out");
  if (!o.repeatable && o.compare)
    throw input_error(
        "--attention fast gives other bits on every run, and --compare compares bits; leave out one of them");
  if (o.graph && m.device != device_kind::cuda)
    throw input_error("--graph replays a step on a GPU; say --device cuda, or leave it out");
  if (o.graph && !flags.given("--capacity"))
    throw input_error(fmt::format("--graph needs a fixed number of rows for every expert; say --capacity "
                                  "{:.2f}, which always suffices, or less",
                                  1.0 * m.experts / m.top_k));
  if (o.graph && o.pp > 1)
    throw input_error(
        fmt::format("--graph replays the step of one pipeline rank; leave out --pp {}, or --graph", o.pp));
  if (o.comm_ctas > 0 && o.transport != transport_kind::nccl)
    throw input_error("--comm-ctas is a budget of NCCL; say --comm nccl, or leave it out");
  if ((o.comm_ctas & (o.comm_ctas - 1)) != 0)
    throw input_error(fmt::format(
        "--comm-ctas must be a power of two, not {}: NCCL would take the next one above", o.comm_ctas));
}

} // namespace

char const* name_of(policy which) {
  switch (which) {
  case policy::autograd:
    return "autograd";
  case policy::serial:
    return "serial";
  case policy::two_stream_1f1b:
    return "two_stream_1f1b";
  case policy::split_dw:
    break;
  }
  return "split_dw";
}

char const* name_of(transport_kind which) {
  switch (which) {
  case transport_kind::peer:
    return "peer";
  case transport_kind::nccl:
    return "nccl";
  case transport_kind::none:
    return "none";
  default:
    return "staged";
  }
}

char const* name_of(device_kind which) { return which == device_kind::cuda ? "cuda" : "cpu"; }

char const* name_of(number_type which) {
  constexpr char const* names[] = {"f32", "bf16", "f64"};
  return names[static_cast<int>(which)];
}

char const* name_of_attention(options const& o) { return o.repeatable ? "repeatable" : "fast"; }

int slots_of(options const& o) {
  double const tokens = 1.0 * o.batch * o.model.sequence;
  return static_cast<int>(std::min(tokens, std::ceil(o.capacity * tokens * o.model.top_k / o.model.experts)));
}

std::optional<options> parse_options(int argc, char const* const* argv) {
  options o;
  auto& m = o.model;
  CLI::App app{"Trains a mixture-of-experts language model on the bytes of a file or folder."};
  app.set_help_flag("--help", "Print this and end");
  app.get_formatter()->column_width(36);
  flag_values flags(app);
  add_flags(flags, app, o);
  if (auto const problem = examples::misused_flag(app, argc, argv); !problem.empty())
    throw input_error(problem);
  try {
    app.parse(argc, argv);
  } catch (CLI::CallForHelp const&) {
    std::fputs(app.help().c_str(), stdout);
    return std::nullopt;
  } catch (CLI::ExtrasError const&) {
    throw input_error(examples::unknown_argument(app));
  } catch (CLI::ParseError const& error) {
    throw input_error(fmt::format("{}; --help shows how each flag is given", error.what()));
  }

  read_sizes(flags, o);

  std::vector<std::string> policies;
  for (auto const each : all_policies) policies.emplace_back(name_of(each));
  auto const otherwise = static_cast<std::size_t>(
      std::find(std::begin(all_policies), std::end(all_policies), o.how) - std::begin(all_policies));
  o.how = all_policies[flags.read_schedule("--policy", policies, otherwise)];
  if (flags.given("--pipeline"))
    o.pipeline = pipeline_names()[flags.read_schedule("--pipeline", pipeline_names(), 0)];
  m.type = flags.read_choice("--dtype", {"f32", "bf16"}, 0) == 0 ? number_type::f32 : number_type::bf16;
  read_device(flags, o);
  if (o.compare && flags.given("--policy"))
    throw input_error("--compare runs every policy; leave out --policy, or --compare");
  check_together(o);

  if (!flags.given("--text"))
    throw input_error(
        "--text is missing; name a file or a folder to train on, for example --text /usr/include/c++");
  o.text = flags.text("--text");
  if (flags.given("--json")) o.json = flags.text("--json");
  if (flags.given("--trace")) o.trace = flags.text("--trace");
  if (flags.given("--svg")) o.svg = flags.text("--svg");
  check_outputs(o);
  return o;
}

} // namespace train_moe
