#include "draw.hpp"
#include "usage.hpp"

#include "../shared/step_picture.hpp"

#include <stretto/timeline.hpp>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace plan_program {

namespace {

constexpr std::size_t most_ops = 40000;
constexpr double most_width = 4000;

void refuse_too_many(phase_replay const& one, char const* format, char const* instead, std::size_t most) {
  std::size_t ops = 0;
  for (stretto::flat_table const& table : one.tables) ops += table.ops.size();
  if (ops > most) {
    throw usage_error(
        fmt::format("--format {} draws at most {} ops and this replay has {}; take {}fewer layers, "
                    "ranks or microbatches",
                    format, most, ops, instead));
  }
}

std::string title(phase_replay const& one) {
  return fmt::format("{}, {}", title_of(one.facts), counted(one.layers, "layer", "layers"));
}

} // namespace

std::string draw_svg(phase_replay const& one, layer_costs const& costs) {
  refuse_too_many(one, "svg", "--format trace, or ", most_ops);
  double shortest = one.makespan;
  for (auto const& rank : one.times)
    for (stretto::op_times const& each : rank)
      if (each.end > each.start) shortest = std::min(shortest, each.end - each.start);
  examples::step_picture picture;
  picture.title = title(one), picture.unit = costs.unit, picture.chunks = one.facts.chunks;
  picture.notes = {
      fmt::format("makespan {} {}, {:.3f} of ideal; numbers are microbatches; of each rank compute above, "
                  "communication below",
                  short_number(one.makespan), costs.unit, one.makespan / one.ideal)};
  picture.scale = std::clamp(3 / shortest, 560 / one.makespan, most_width / one.makespan);
  for (int rank = 0; rank < one.facts.ranks; ++rank) {
    auto const& rows = one.tables[static_cast<std::size_t>(rank)].ops;
    examples::step_band band{one.makespan, {}};
    std::vector<stretto::span> const spans = one.spans(rank);
    for (std::size_t row = 0; row < spans.size(); ++row)
      band.ops.push_back({spans[row], rows[static_cast<unsigned>(row)].chunk});
    picture.ranks.push_back({std::move(band)});
  }
  return examples::draw_svg(picture);
}

std::string draw_trace(phase_replay const& one, layer_costs const& costs) {
  refuse_too_many(one, "trace", "", 400'000);
  std::vector<stretto::span> spans;
  for (int rank = 0; rank < one.facts.ranks; ++rank) {
    for (stretto::span each : one.spans(rank)) {
      constexpr double scale = 1000; // the format counts in microseconds
      each.start_us *= scale, each.end_us *= scale;
      if (!stretto::is_send(each.label.on)) spans.push_back(each);
    }
  }
  std::ostringstream out;
  stretto::write_chrome_trace(out, spans, title(one) + "; modelled with " + costs.name);
  return out.str();
}

} // namespace plan_program
