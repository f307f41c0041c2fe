#include "draw_step.hpp"

#include "report.hpp"
#include "run_plan.hpp"

#include "../shared/numbers.hpp"
#include "../shared/step_picture.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace train_moe {
namespace {

constexpr double width = 1400;

/// The chunk of each layer of a pipeline rank, embedding and head among them.
std::vector<int> chunks_of_layers(stretto::plan_facts const& facts, int pipeline_rank, int layers) {
  std::vector<int> chunks;
  int chunk = 0;
  for (auto const& part : parts_of(facts, pipeline_rank, layers)) {
    int const count = part.end - part.first + (part.embeds ? 1 : 0) + (part.has_head ? 1 : 0);
    chunks.insert(chunks.end(), static_cast<std::size_t>(count), chunk++);
  }
  return chunks;
}

} // namespace

std::string draw_step(options const& o, run_result const& run) {
  auto const plan = plan_of(o, run.how);
  auto const& facts = plan.facts();
  auto begin = run.last_step.front().start_us, end = begin;
  for (auto const& op : run.last_step) begin = std::min(begin, op.start_us), end = std::max(end, op.end_us);
  auto const in_ms = [&](double us) { return 1e-3 * (us - begin); };
  examples::step_picture picture;
  picture.title = fmt::format("{}, {}: {} expert x {} pipeline ranks, {} microbatches, {} layers",
                              name_of(run.how), facts.name, o.ep, o.pp, o.microbatches, o.model.layers);
  picture.notes = {fmt::format("forward and backward of step {}: {} ms; {}", run.losses.size(),
                               examples::short_number(in_ms(end)), link_text(o)),
                   "of each rank compute above, communication below; numbers are microbatches"};
  picture.unit = "ms";
  picture.scale = width / in_ms(end);
  picture.chunks = facts.chunks;
  for (int rank = 0; rank < o.ep * o.pp; ++rank) {
    auto const chunks = chunks_of_layers(facts, rank_place{o.ep, o.pp, rank}.pipeline_rank(), o.model.layers);
    examples::step_band band{in_ms(end), {}};
    for (auto op : run.last_step) {
      if (op.rank != rank || stretto::is_message(op.label)) continue;
      op.start_us = in_ms(op.start_us), op.end_us = in_ms(op.end_us);
      band.ops.push_back({op, chunks[static_cast<std::size_t>(op.label.layer)]});
    }
    picture.ranks.push_back({std::move(band)});
  }
  return examples::draw_svg(picture);
}

} // namespace train_moe
