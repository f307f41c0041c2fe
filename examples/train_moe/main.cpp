#include "corpus.hpp"
#include "draw_step.hpp"
#include "forecast.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "report.hpp"
#include "run_plan.hpp"
#include "trainer.hpp"

#include "../shared/words.hpp"

#include <stretto/failure.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

namespace fs = std::filesystem;

/// Goes on in the program beside this one that is linked with CUDA: machines without CUDA could not load it.
[[noreturn]] void continue_on_gpu(char** argv) {
  std::error_code problem;
  if (!fs::exists("/dev/nvidiactl", problem))
    throw train_moe::input_error(
        "--device cuda: this machine has no NVIDIA GPU; leave the flag out or say --device cpu");
  auto const here = fs::read_symlink("/proc/self/exe", problem);
  auto const there = here.parent_path() / "train_moe_cuda";
  if (!problem && fs::exists(there, problem)) ::execv(there.c_str(), argv);
  throw train_moe::input_error(
      "--device cuda: this build trains on the CPU only; build where CUDA and a libtorch with "
      "CUDA are, or say --device cpu");
}

/// Null if all ranks are threads of this process. Never destroyed: after a failure threads of it may be in a call that does
/// not end before the deadline.
train_moe::processes* others = nullptr;
bool in_launch = false;

/// What trains, for errors that say what it takes.
std::optional<std::pair<train_moe::options, train_moe::policy>> running;
std::string with_forecast(std::string const& problem) {
  return running ? train_moe::with_forecast(problem, running->first, running->second) : problem;
}

/// What is wrong, on one line of stderr, whatever a library put into its message.
void say(std::string const& problem) {
  std::fprintf(stderr, "train_moe: %s\n",
               examples::shown_sentence(problem.substr(0, problem.find('\n'))).c_str());
}

/// Ends one of several processes, by which the others learn of it. Threads that still wait for others do not hold it up.
[[noreturn]] void end_after_failure(std::string const& problem, bool names_op) {
  static std::atomic_flag ending;
  if (ending.test_and_set()) std::this_thread::sleep_for(std::chrono::hours(1));
  say(others->told(problem.substr(0, problem.find('\n')), names_op));
  std::fflush(nullptr);
  std::_Exit(1);
}

int run(int argc, char** argv) {
  using namespace train_moe;
  auto const parsed = parse_options(argc, argv);
  if (!parsed) return 0;
  auto o = *parsed;
  if (!serves(o.model.device)) continue_on_gpu(argv);
  auto const place = place_in_launch(o);
  in_launch = place.has_value();
  prepare(o, place);
  o.transport = transport_of(o, in_launch);
  bool const reports = !place || place->rank == 0;
  corpus const text(o.text, o.model.sequence);
  output_file const json("--json", reports ? o.json : fs::path());
  output_file const trace("--trace", reports ? o.trace : fs::path());
  output_file const svg("--svg", reports ? o.svg : fs::path());

  if (place) others = join_processes(o, text.digest(), end_after_failure).release();
  if (reports) print_header(o, text);
  std::vector<run_result> runs;
  for (auto const how : all_policies) {
    if (o.compare ? !goes_with_pipeline(o, how) : how != o.how) continue;
    progress_line line(how, o.steps);
    running.emplace(o, how);
    runs.push_back(train(
        o, how, text, [&line](progress const& now) { line.show(now); }, others));
    if (reports) line.finish(runs.back());
  }
  if (others) others->leave();
  if (!reports) return 0;
  if (o.compare) print_comparison(o, runs);
  json.write([&](std::ostream& out) { write_json(out, o, runs); });
  trace.write([&](std::ostream& out) { write_trace(out, o, runs.back()); });
  svg.write([&](std::ostream& out) { out << draw_step(o, runs.back()); });
  return 0;
}

/// What a rank that is a thread ended with, if that is a sentence of its own, and the exit code that goes with it.
std::pair<std::string, int> own_sentence(std::exception const& error) {
  try {
    std::rethrow_if_nested(error);
  } catch (train_moe::input_error const& refusal) {
    return {refusal.what(), 2};
  } catch (train_moe::run_error const& end) {
    return {end.what(), 1};
  } catch (...) {
  }
  return {};
}

/// Trains, or says why not.
int status_of(int argc, char** argv) {
  std::string problem;
  try {
    return run(argc, argv);
  } catch (train_moe::input_error const& error) {
    say(error.what());
    if (in_launch) {
      // The others may still be reading what lets them say the same.
      if (others) std::this_thread::sleep_for(std::chrono::milliseconds(300));
      // A thread may still be in a call to a process that is silent.
      std::fflush(nullptr);
      std::_Exit(2);
    }
    return 2;
  } catch (train_moe::run_error const& error) {
    if (others) end_after_failure(error.what(), false);
    say(error.what());
    return 1;
  } catch (std::bad_alloc const&) {
    problem = with_forecast("out of memory");
  } catch (stretto::step_error const& error) {
    if (auto const [sentence, status] = own_sentence(error); !others && status != 0) {
      say(sentence);
      return status;
    }
    problem = with_forecast(error.what());
    if (others) end_after_failure(problem, error.in_op);
  } catch (std::exception const& error) {
    problem = with_forecast(error.what());
  }
  if (others)
    end_after_failure("rank " + std::to_string(others->place().rank) + " failed: " + problem, false);
  say(problem);
  return 1;
}

} // namespace

/// 0: trained. 2: the command line or the text cannot be served. 1: something failed on the way.
int main(int argc, char** argv) {
  // A file that outgrows `ulimit -f` is an error of the write, not a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  int status = status_of(argc, argv);
  if (status == 0 && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)) {
    say("standard output could not be written; give it a place that takes it");
    status = 1;
  }
  if (others == nullptr) return status;
  std::fflush(nullptr);
  std::_Exit(status);
}
