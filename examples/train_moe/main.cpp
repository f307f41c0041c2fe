#include "corpus.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "report.hpp"
#include "run_plan.hpp"
#include "trainer.hpp"

#include <cstdio>
#include <exception>
#include <filesystem>
#include <string>
#include <system_error>
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

int run(int argc, char** argv) {
  using namespace train_moe;
  auto const parsed = parse_options(argc, argv);
  if (!parsed) return 0;
  auto const& o = *parsed;
  if (!serves(o.model.device)) continue_on_gpu(argv);
  prepare(o.model.device);
  corpus const text(o.text, o.model.sequence);
  output_file const json("--json", o.json);
  output_file const trace("--trace", o.trace);

  print_header(o, text);
  std::vector<run_result> runs;
  for (auto const how : all_policies) {
    if (o.compare ? !goes_with_pipeline(o, how) : how != o.how) continue;
    progress_line line(how, o.steps);
    runs.push_back(train(o, how, text, [&line](progress const& now) { line.show(now); }));
    line.finish(runs.back());
  }
  if (o.compare) print_comparison(o, runs);
  json.write([&](std::ostream& out) { write_json(out, o, runs); });
  trace.write([&](std::ostream& out) { write_trace(out, o, runs.back()); });
  return 0;
}

}  // namespace

/// 0: trained. 2: the command line or the text cannot be served. 1: something failed on the way.
int main(int argc, char** argv) {
  std::string problem;
  int status = 1;
  try {
    return run(argc, argv);
  } catch (train_moe::input_error const& error) {
    problem = error.what();
    status = 2;
  } catch (std::bad_alloc const&) {
    problem = "out of memory; make the model, --batch or --seq smaller";
  } catch (std::exception const& error) {
    problem = error.what();
  }
  // One line, whatever a library put into its message.
  problem = problem.substr(0, problem.find('\n'));
  std::fprintf(stderr, "train_moe: %s\n", problem.c_str());
  return status;
}
