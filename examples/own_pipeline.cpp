/// A pipeline of one's own: one type, and checks, messages, simulation and pictures come with it.
#include "plan/draw.hpp"
#include "plan/notation.hpp"
#include "plan/report.hpp"

#include <stretto/pipelines/proof.hpp>
#include <stretto/plan/error.hpp>

#include <cstdio>
#include <stdexcept>
#include <string>

namespace {

using stretto::call;

/// Breadth-first (arXiv 2211.05953): every microbatch through a chunk before the next chunk starts. Data-parallel
/// communication of a chunk then hides behind the other chunks; every activation is live at once.
struct BreadthFirst {
  static constexpr char const* name = "breadth_first";
  static constexpr auto map = stretto::placement::looped;
  static constexpr int chunks = 2, most_chunks = 16;
  static constexpr bool pairs = false, splits = false;

  static constexpr int min_microbatches(int ranks) { return ranks; }
  static constexpr int peak_live(int, int, int microbatches, int held) { return microbatches * held; }

  static constexpr void run(int, int, int microbatches, int held, auto&& sink) {
    for (int chunk = 0; chunk < held; ++chunk) {
      for (int m = 0; m < microbatches; ++m) sink(call::forward(chunk, m));
    }
    for (int chunk = held - 1; chunk >= 0; --chunk) {
      for (int m = 0; m < microbatches; ++m) sink(call::backward(chunk, m));
    }
  }
};

} // namespace

// An order that deadlocks, drops a pass or disorders weight gradients does not compile.
template struct stretto::pipeline_proof<BreadthFirst>;

/// What a rank calls and which messages it sends (s) and receives (r), a line a rank.
std::string messages(stretto::plan const& plan) {
  stretto::plan_steps const steps = stretto::lower_messages(plan);
  stretto::require(plan.facts(), stretto::check_messages(plan, steps));
  return plan_program::golden(plan, steps);
}

int main() {
  stretto::plan const plan = stretto::proved_plan<BreadthFirst>(4, 8);
  plan_program::layer_costs const costs = plan_program::find_costs("deepseek_h800");
  stretto::simulation const run(plan, costs.chunk(plan.facts().chunks));
  plan_program::picture const picture{plan, run, costs};
  std::printf("%s\n%s\n", plan_program::draw_text(picture).c_str(),
              plan_program::report_table(picture).c_str());

  std::printf("2 ranks and 2 microbatches, with messages:\n%s\n",
              messages(stretto::proved_plan<BreadthFirst>(2, 2)).c_str());

  try {
    stretto::proved_plan<BreadthFirst>(4, 3);
    return 1;
  } catch (std::invalid_argument const& refusal) { // sizes that it cannot serve are refused in words
    std::printf("%s\n", refusal.what());
  }
}
