#include "corpus.hpp"
#include "memory.hpp"
#include "options.hpp"
#include "output_file.hpp"
#include "report.hpp"
#include "trainer.hpp"

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

int run(int argc, char const* const* argv) {
  using namespace train_moe;
  auto const parsed = parse_options(argc, argv);
  if (!parsed) return 0;
  auto const& o = *parsed;
  corpus const text(o.text, o.model.sequence);
  output_file const json("--json", o.json);
  output_file const trace("--trace", o.trace);

  count_tensor_memory();
  print_header(o, text);
  std::vector<run_result> runs;
  for (auto const how : all_policies) {
    if (!o.compare && how != o.how) continue;
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
