#include "draw.hpp"
#include "measured.hpp"
#include "report.hpp"
#include "usage.hpp"

#include "../shared/step_picture.hpp"
#include "../shared/table.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plan_program {

namespace {

constexpr std::size_t most_ops = 20000, panel_width = 104;
constexpr double width = 1400;
std::string const unit = "ms";

int chunk_of(measured_step const& one, stretto::span const& op) {
  return one.layer_chunk[static_cast<std::size_t>(op.rank)][static_cast<std::size_t>(op.label.layer)];
}

std::vector<stretto::span> predicted_ops(measured_step const& one) {
  std::vector<stretto::span> all;
  for (int rank = 0; rank < one.predicted.facts.ranks; ++rank)
    for (stretto::span const& each : one.predicted.spans(rank))
      if (!stretto::is_message(each.label)) all.push_back(each);
  return all;
}

std::string summary(measured_step const& one) {
  return fmt::format("makespan {} ms predicted, {} ms measured: {:.3f}", short_number(one.predicted.makespan),
                     short_number(one.makespan), one.ratio());
}

/// What a column shows: the compute that takes most of it, else communication, else nothing.
char shown_in(double const (&compute)[4], double comm, double column) {
  constexpr char fill[] = {'-', '#', '+', '%'};
  auto const most = std::max_element(std::begin(compute), std::end(compute));
  double const idle = column - compute[0] - compute[1] - compute[2] - compute[3];
  if (*most > 0 && *most >= idle) return fill[most - std::begin(compute)];
  return comm > column / 2 ? '~' : *most > column / 4 ? fill[most - std::begin(compute)] : ' ';
}

std::string row_of(std::vector<stretto::span> const& ops, int rank, double makespan) {
  double const column = makespan / static_cast<double>(panel_width);
  struct moment {
    double compute[4] = {}, comm = 0;
  };
  std::vector<moment> moments(panel_width);
  for (stretto::span const& each : ops) {
    if (each.rank != rank) continue;
    auto const first = static_cast<std::size_t>(std::max(0.0, each.start_us / column));
    for (std::size_t at = first; at < panel_width && static_cast<double>(at) * column < each.end_us; ++at) {
      double const begin = static_cast<double>(at) * column;
      double const part = std::min(each.end_us, begin + column) - std::max(each.start_us, begin);
      if (stretto::work_of(each.label) == stretto::work::communication)
        moments[at].comm += part;
      else
        moments[at].compute[static_cast<int>(each.label.what)] += part;
    }
  }
  std::string row;
  for (moment const& each : moments) row += shown_in(each.compute, each.comm, column);
  while (!row.empty() && row.back() == ' ') row.pop_back();
  return row;
}

} // namespace

std::string draw_text(measured_step const& one) {
  double const longest = std::max(one.makespan, one.predicted.makespan);
  std::vector<stretto::span> const predicted = predicted_ops(one);
  std::string text = one.title() + '\n' + one.method() + summary(one) + "\n\n";
  for (int rank = 0; rank < one.predicted.facts.ranks; ++rank) {
    text += fmt::format("rank {:<3} predicted  |{}\n", rank, row_of(predicted, rank, longest));
    text += fmt::format("         measured   |{}\n\n", row_of(one.ops, rank, longest));
  }
  text += fmt::format(
      "A character is {} ms: - forward, # backward, + its input gradients, % its weight gradients, ~ "
      "communication alone,\nblank nothing, whichever takes most of it\n",
      short_number(longest / static_cast<double>(panel_width)));
  return text;
}

std::string draw_svg(measured_step const& one) {
  std::vector<stretto::span> const predicted = predicted_ops(one);
  if (predicted.size() + one.ops.size() > most_ops)
    throw usage_error(
        fmt::format("--format svg draws at most {} ops and these steps have {}; take --format text, or "
                    "trace a smaller step",
                    most_ops, predicted.size() + one.ops.size()));
  examples::step_picture picture;
  picture.title = one.title(), picture.unit = unit, picture.chunks = one.predicted.facts.chunks;
  picture.notes = {summary(one),
                   "of each rank predicted above, measured below, both with compute over communication; "
                   "numbers are microbatches"};
  picture.scale = width / std::max(one.makespan, one.predicted.makespan);
  for (int rank = 0; rank < one.predicted.facts.ranks; ++rank) {
    auto const band = [&](std::vector<stretto::span> const& ops, double length) {
      examples::step_band made{length, {}};
      for (stretto::span const& each : ops)
        if (each.rank == rank) made.ops.push_back({each, chunk_of(one, each)});
      return made;
    };
    picture.ranks.push_back({band(predicted, one.predicted.makespan), band(one.ops, one.makespan)});
  }
  return examples::draw_svg(picture);
}

std::string report_table(measured_step const& one) {
  std::vector<std::vector<std::string>> rows = {
      {"rank", "compute", "measured", "exposed communication", "measured", "bubble", "measured"}};
  for (std::size_t rank = 0; rank < one.ranks.size(); ++rank) {
    rank_time const &said = one.predicted.ranks[rank], &ran = one.ranks[rank];
    rows.push_back(
        {fmt::format("{}", rank), short_number(said.compute), short_number(ran.compute),
         with_percent(said.exposed, one.predicted.makespan), with_percent(ran.exposed, one.makespan),
         with_percent(said.bubble, one.predicted.makespan), with_percent(ran.bubble, one.makespan)});
  }
  return one.title() + '\n' + one.method() + summary(one) +
         fmt::format("\nits ops, replayed as long as they took: {} ms; what is measured beyond was spent "
                     "between ops\n\ntimes in ms; bubble: no op runs\n\n",
                     short_number(one.of_own_ops)) +
         examples::aligned(rows);
}

std::string report_json(measured_step const& one) {
  using nlohmann::ordered_json;
  auto const times = [](rank_time const& of) {
    return ordered_json{{"compute", of.compute},
                        {"communication", of.comm},
                        {"exposed_communication", of.exposed},
                        {"bubble", of.bubble}};
  };
  ordered_json ranks = ordered_json::array();
  for (std::size_t rank = 0; rank < one.ranks.size(); ++rank)
    ranks.push_back({{"rank", rank},
                     {"predicted", times(one.predicted.ranks[rank])},
                     {"measured", times(one.ranks[rank])}});
  stretto::plan_facts const& facts = one.predicted.facts;
  ordered_json const file = {{"pipeline", facts.name},
                             {"policy", one.policy},
                             {"ranks", facts.ranks},
                             {"expert_ranks", one.expert_ranks},
                             {"microbatches", facts.microbatches},
                             {"chunks", facts.chunks},
                             {"layers", one.predicted.layers},
                             {"dense", one.dense},
                             {"serial_runs", one.serial_runs},
                             {"unit", unit},
                             {"predicted_makespan", one.predicted.makespan},
                             {"measured_makespan", one.makespan},
                             {"measured_to_predicted", one.ratio()},
                             {"makespan_of_own_ops", one.of_own_ops},
                             {"per_rank", ranks}};
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

} // namespace plan_program
