#include "costs.hpp"
#include "draw.hpp"
#include "measured.hpp"
#include "notation.hpp"
#include "programs.hpp"
#include "report.hpp"
#include "usage.hpp"

#include "../shared/flag_words.hpp"
#include "../shared/schedule_names.hpp"

#include <stretto/pipelines/all.hpp>
#include <stretto/plan/error.hpp>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <system_error>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

namespace {

using namespace plan_program;

struct options {
  std::string pipeline = "dual_pipe_v", format, costs;
  std::string ranks = "4", microbatches = "8", chunks;
  std::string layer, replay = "chunks", layers, layer_bytes, measured;
  bool names_plan = false; ///< a flag says which plan
  bool names_pipeline = false;
  bool comm = false, json = false, compare = false;
};

struct sizes {
  int ranks, microbatches, chunks; ///< chunks 0: the pipeline's own number
};

std::vector<std::string> pipeline_names() {
  using list = stretto::shipped_pipelines;
  return {std::begin(list::names), std::end(list::names)};
}

void require_one_of(std::string const& flag, std::string const& text, std::vector<std::string> const& names) {
  if (std::find(names.begin(), names.end(), text) == names.end()) {
    std::string const near = nearest(text, names);
    throw usage_error(fmt::format(
        "{}: there is no '{}'; {}{}", flag, shown(text),
        near.empty() ? "take one of " : fmt::format("did you mean '{}'? There are ", near), listed(names)));
  }
}

sizes sizes_of(options const& given) {
  return {whole_number("--ranks", given.ranks, 1, stretto::plan_limits::ranks),
          whole_number("--microbatches", given.microbatches, 1, stretto::plan_limits::microbatches),
          given.chunks.empty() ? 0 : whole_number("--chunks", given.chunks, 1, stretto::plan_limits::chunks)};
}

stretto::plan plan_of(std::string const& name, sizes const& at) {
  std::optional<stretto::plan> made;
  stretto::shipped_pipelines::with(name.c_str(), [&]<class Pipeline>() {
    made.emplace(stretto::proved_plan<Pipeline>(at.ranks, at.microbatches, at.chunks));
  });
  return std::move(*made);
}

/// `layers` 0 replays call by call.
report simulated(stretto::plan const& plan, layer_costs const& costs, int layers) {
  if (layers > 0) return report_of(replay_of(plan, costs, layers), costs);
  stretto::simulation const run(plan, costs.chunk(plan.facts().chunks));
  return report_of(picture{plan, run, costs});
}

std::string compare_all(sizes const& at, layer_costs const& costs, int layers, bool json) {
  std::vector<compared> all;
  stretto::shipped_pipelines::each([&]<class Pipeline>() {
    bool const takes_chunks = stretto::most_chunks<Pipeline>() != Pipeline::chunks;
    try {
      stretto::plan const plan =
          plan_of(Pipeline::name, {at.ranks, at.microbatches, takes_chunks ? at.chunks : 0});
      all.push_back({Pipeline::name, "", simulated(plan, costs, layers)});
    } catch (std::invalid_argument const& refusal) {
      all.push_back({Pipeline::name, refusal.what(), {}});
    }
  });
  return json ? compare_json(all, costs, at.ranks, at.microbatches, layers)
              : compare_table(all, costs, at.ranks, at.microbatches, layers);
}

std::string golden_of(stretto::plan const& plan, bool comm) {
  if (!comm) return golden(plan);
  stretto::plan_steps const steps = stretto::lower_messages(plan);
  stretto::require(plan.facts(), stretto::check_messages(plan, steps));
  return golden(plan, steps);
}

layer_costs costs_of(options const& given, char const* preset) {
  layer_costs costs = find_costs(given.costs.empty() ? preset : given.costs);
  if (!given.layer_bytes.empty())
    costs.layer_bytes = static_cast<double>(
        whole_number("--layer-bytes", given.layer_bytes, std::int64_t{1}, std::int64_t{1} << 50));
  return costs;
}

std::string layer_answer(options const& given) {
  require_one_of("--layer", given.layer, layer_policy_names());
  if (given.names_plan || given.comm || given.json || given.compare)
    throw usage_error("--layer draws one layer pair; it goes with --format and --costs only");
  std::string const format = given.format.empty() ? "text" : given.format;
  if (format == "golden")
    throw usage_error("--format golden lists calls of ranks, which --layer has not; leave one out");
  layer_pair const pair = pair_of(given.layer, costs_of(given, "deepseek_h800"));
  if (format == "mermaid") return draw_mermaid(pair);
  if (format == "svg") return draw_svg(pair);
  if (format == "trace") return draw_trace(pair);
  return draw_text(pair);
}

/// The trace says which plan it is of.
std::string measured_answer(options const& given) {
  if (!given.layer.empty() || given.names_plan || given.comm || given.compare)
    throw usage_error(
        "--measured takes pipeline and sizes from its trace; it goes with --costs, --format and --json "
        "only");
  if (!given.format.empty() && given.format != "svg" && given.format != "text")
    throw usage_error(
        fmt::format("--measured draws text and svg, not {}; leave --format out for the table", given.format));
  if (given.json && !given.format.empty())
    throw usage_error("--json reports a simulation; leave --format out");
  constexpr char const* serial_run = "the trace of a serial run of the same model: train_moe --policy serial "
                                     "--pipeline zero_bubble_h1 --pp 1 "
                                     "--trace FILE";
  std::error_code problem;
  if (given.costs.empty()) throw usage_error(fmt::format("--measured needs --costs with {}", serial_run));
  if (is_preset(given.costs) && !std::filesystem::exists(given.costs, problem))
    throw usage_error(fmt::format("--measured takes no preset such as --costs {}; give --costs {}",
                                  given.costs, serial_run));
  if (std::filesystem::equivalent(given.measured, given.costs, problem))
    throw usage_error(
        "--measured and --costs name the same file; a prediction takes its costs from a run of its own");
  recorded_step const trace = read_trace("--measured", given.measured);
  measured_step const one = compare_with_run(trace, read_trace("--costs", given.costs));
  if (given.format == "svg") return draw_svg(one);
  if (given.format == "text") return draw_text(one);
  return given.json ? report_json(one) : report_table(one);
}

std::string phases_answer(options const& given, sizes const& at) {
  if (!given.format.empty() && given.format != "svg" && given.format != "trace")
    throw usage_error(fmt::format(
        "--replay phases draws svg and trace, not {}; leave --format out for the table", given.format));
  int const layers = given.layers.empty() ? 64 : whole_number("--layers", given.layers, 1, 4096);
  layer_costs const costs = costs_of(given, "deepseek_h800");
  if (given.compare) return compare_all(at, costs, layers, given.json);
  phase_replay const run = replay_of(plan_of(given.pipeline, at), costs, layers);
  if (given.format == "svg") return draw_svg(run, costs);
  if (given.format == "trace") return draw_trace(run, costs);
  report const found = report_of(run, costs);
  return given.json ? report_json(found, costs) : report_table(found, costs);
}

std::string answer(options given) {
  given.pipeline = examples::schedule_name(given.pipeline, pipeline_names());
  given.layer = examples::schedule_name(given.layer, layer_policy_names());
  require_one_of("--pipeline", given.pipeline, pipeline_names());
  if (!given.format.empty())
    require_one_of("--format", given.format, {"golden", "text", "mermaid", "svg", "trace"});
  if (!given.measured.empty()) return measured_answer(given);
  if (!given.layer.empty()) return layer_answer(given);
  if (given.comm && given.replay == "phases")
    throw usage_error("--comm lists messages between chunks; leave it out, or --replay phases");
  if (given.comm && given.format.empty()) given.format = "golden";
  if (given.comm && given.format != "golden")
    throw usage_error("--comm lists messages; it goes with --format golden only");
  if (given.format == "golden" && !given.costs.empty())
    throw usage_error("--format golden lists calls without times; leave --costs out, or take --format text");
  if (given.json && !given.format.empty())
    throw usage_error("--json reports a simulation; leave --format out");
  if (given.compare && !given.format.empty())
    throw usage_error("--compare prints a table; leave --format and --comm out");
  if (given.compare && given.names_pipeline)
    throw usage_error("--compare simulates every pipeline; leave --pipeline out, or --compare");
  if (!given.layer_bytes.empty() && !given.format.empty())
    throw usage_error("--layer-bytes stands in tables and --json; leave --format and --comm out");
  require_one_of("--replay", given.replay, {"chunks", "phases"});
  if (!given.layers.empty() && given.replay != "phases")
    throw usage_error(
        "--layers goes with --replay phases; a replay of chunks takes layers_per_rank of the costs");
  sizes const at = sizes_of(given);
  if (given.replay == "phases") return phases_answer(given, at);
  layer_costs const costs = costs_of(given, "unit");
  if (given.compare) return compare_all(at, costs, 0, given.json);

  stretto::plan const plan = plan_of(given.pipeline, at);
  if (given.format == "golden") return golden_of(plan, given.comm);
  stretto::simulation const run(plan, costs.chunk(plan.facts().chunks));
  picture const one{plan, run, costs};
  if (given.json) return report_json(report_of(one), costs);
  if (given.format == "mermaid") return draw_mermaid(one);
  if (given.format == "svg") return draw_svg(one);
  if (given.format == "trace") return draw_trace(one);
  if (given.format.empty() && !(given.costs.empty() && given.layer_bytes.empty())) return report_table(one);
  return draw_text(one);
}

void add_flags(CLI::App& app, options& given) {
  app.add_option("--pipeline", given.pipeline,
                 "one of " + listed(pipeline_names()) + "; also " + examples::other_schedule_names())
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--ranks", given.ranks, "pipeline ranks")->type_name("N")->capture_default_str();
  app.add_option("--microbatches", given.microbatches, "microbatches of a step")
      ->type_name("N")
      ->capture_default_str();
  app.add_option("--chunks", given.chunks, "chunks of a rank (interleaved, interleaved_ep)")->type_name("N");
  app.add_option("--format", given.format, "golden, text (the default), mermaid, svg or trace")
      ->type_name("NAME");
  app.add_flag("--comm", given.comm, "with --format golden: the messages between the ranks too");
  app.add_option("--costs", given.costs, "simulate with these costs: unit, deepseek_h800, or a JSON file")
      ->type_name("FILE|NAME");
  app.add_option("--replay", given.replay,
                 "chunks: a call takes what its chunk costs; phases: op by op, as the executor issues them")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--layers", given.layers, "with --replay phases: MoE layers of the model (64)")
      ->type_name("N");
  app.add_option("--layer-bytes", given.layer_bytes,
                 "what one layer keeps of a microbatch between forward and backward: tables and JSON then "
                 "tell peak live activations in bytes too")
      ->type_name("N");
  app.add_option("--layer", given.layer, "draw one layer pair: serial, two_stream_1f1b or split_dw")
      ->type_name("POLICY");
  app.add_option(
         "--measured", given.measured,
         "a trace of train_moe: that step beside its prediction, with --costs TRACE of a serial run, or "
         "of one for each rank of the step, whose ops then cost what they took in the run of their "
         "rank")
      ->type_name("TRACE");
  app.add_flag("--json", given.json, "the simulation as JSON");
  app.add_flag("--compare", given.compare, "a table of every pipeline at these sizes");
  app.footer(
      "Examples:\n"
      "  plan --pipeline dual_pipe_v --ranks 4 --microbatches 8\n"
      "  plan --pipeline interleaved_ep --ranks 4 --microbatches 8 --chunks 4 --format svg > plan.svg\n"
      "  plan --ranks 8 --microbatches 32 --costs deepseek_h800 --compare\n"
      "  plan --ranks 8 --microbatches 32 --replay phases --compare\n"
      "  plan --layer split_dw --format svg > pair.svg\n"
      "  plan --measured step.json --costs serial.json --format svg > step.svg");
}

constexpr char const* unwritten = "the output could not be written; is the disk full?";

int refuse(char const* what) {
  // Not by fmt, which throws where stderr cannot be written.
  std::fprintf(stderr, "plan: %s\n", what);
  return 2;
}

} // namespace

int main(int count, char** words) {
  // A file that outgrows `ulimit -f` is an error of the write, not a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  options given;
  CLI::App app("Prints, draws and simulates pipeline schedules without running them.", "plan");
  add_flags(app, given);
  if (std::string const problem = examples::misused_flag(app, count, words); !problem.empty())
    return refuse(problem.c_str());
  try {
    app.parse(count, words);
  } catch (CLI::Success const& help) {
    int const status = app.exit(help);
    return std::fflush(stdout) == 0 && std::ferror(stdout) == 0 ? status : refuse(unwritten);
  } catch (CLI::ExtrasError const&) {
    return refuse(examples::unknown_argument(app).c_str());
  } catch (CLI::ParseError const& error) {
    return refuse((shown_sentence(error.what()) + "; plan --help lists what there is").c_str());
  }
  given.names_pipeline = app.count("--pipeline") > 0;
  for (char const* const flag :
       {"--pipeline", "--ranks", "--microbatches", "--chunks", "--replay", "--layers", "--layer-bytes"})
    given.names_plan = given.names_plan || app.count(flag) > 0;
  try {
    std::string const text = answer(given);
    if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
      return refuse(unwritten);
    }
    return 0;
  } catch (std::bad_alloc const&) {
    return refuse(given.measured.empty()
                      ? "not enough memory for this plan; take fewer ranks, chunks or microbatches"
                      : "not enough memory for these traces; trace smaller steps");
  } catch (std::exception const& error) {
    return refuse(error.what());
  }
}
