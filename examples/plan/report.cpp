#include "report.hpp"

#include <stretto/plan_messages.hpp>

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plan_program {

namespace {

using nlohmann::ordered_json;

ordered_json costs_json(layer_costs const& costs) {
  return {{"name", costs.name}, {"source", costs.source}, {"unit", costs.unit}};
}

/// Columns as wide as their widest entry; the first to the left, numbers to the right.
std::string table(std::vector<std::vector<std::string>> const& rows) {
  std::vector<std::size_t> widths;
  for (auto const& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (auto const& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    text += line + '\n';
  }
  return text;
}

std::string with_percent(double value, double whole) {
  return fmt::format("{} ({:4.1f}%)", short_number(value), whole > 0 ? 100 * value / whole : 0.0);
}

std::string costs_line(layer_costs const& costs) {
  return fmt::format("costs: {}{}\n", costs.name, costs.source.empty() ? "" : ", " + costs.source) +
         "a call alone takes its phases in turn, a pair its longer lane\n";
}

} // namespace

std::string report_table(picture const& one) {
  std::vector<std::vector<std::string>> rows = {
      {"rank", "compute", "communication", "exposed communication", "bubble", "peak live chunks"}};
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    stretto::rank_report const& report = one.run.rank(rank);
    rows.push_back({fmt::format("{}", rank), short_number(report.compute), short_number(report.comm),
                    with_percent(report.exposed, one.run.makespan()),
                    with_percent(one.run.bubble(rank), one.run.makespan()),
                    fmt::format("{}", report.peak_live)});
  }
  return fmt::format("{}\n{}makespan {} {}, ideal {} {}, ratio to ideal {:.3f}\n\n", one.title(),
                     costs_line(one.costs), short_number(one.run.makespan()), one.costs.unit,
                     short_number(one.run.ideal()), one.costs.unit, one.run.ratio()) +
         table(rows);
}

std::string report_json(picture const& one) {
  ordered_json ranks = ordered_json::array();
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    stretto::rank_report const& report = one.run.rank(rank);
    ranks.push_back({{"rank", rank},
                     {"compute", report.compute},
                     {"communication", report.comm},
                     {"exposed_communication", report.exposed},
                     {"bubble", one.run.bubble(rank)},
                     {"peak_live_chunks", report.peak_live}});
  }
  ordered_json const file = {{"pipeline", one.facts().name},
                             {"ranks", one.facts().ranks},
                             {"microbatches", one.facts().microbatches},
                             {"chunks", one.facts().chunks},
                             {"costs", costs_json(one.costs)},
                             {"makespan", one.run.makespan()},
                             {"ideal", one.run.ideal()},
                             {"ratio_to_ideal", one.run.ratio()},
                             {"per_rank", ranks}};
  return file.dump(2) + '\n';
}

compared compare_one(picture const& one) {
  compared result;
  result.name = one.facts().name, result.chunks = one.facts().chunks;
  result.makespan = one.run.makespan(), result.ratio = one.run.ratio();
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    stretto::rank_report const& report = one.run.rank(rank);
    result.bubble = std::max(result.bubble, one.run.bubble(rank));
    result.exposed = std::max(result.exposed, report.exposed);
    result.peak_live = std::max(result.peak_live, static_cast<double>(report.peak_live) / one.facts().chunks);
    for (long at = 0; at < one.of.size(rank); ++at) {
      stretto::detail::each_output(one.facts(), rank, one.of.calls(rank)[at],
                                   [&](auto const&) { ++result.messages; });
    }
  }
  return result;
}

std::string compare_table(std::vector<compared> const& all, layer_costs const& costs, int ranks,
                          int microbatches) {
  std::vector<std::vector<std::string>> rows = {{"pipeline", "chunks", "makespan", "ratio to ideal", "bubble",
                                                 "exposed communication", "peak live", "messages"}};
  std::string refusals;
  for (compared const& one : all) {
    if (!one.refused.empty()) {
      refusals += one.refused + '\n';
      continue;
    }
    rows.push_back({one.name, fmt::format("{}", one.chunks), short_number(one.makespan),
                    fmt::format("{:.3f}", one.ratio), with_percent(one.bubble, one.makespan),
                    with_percent(one.exposed, one.makespan), fmt::format("{:.2f}", one.peak_live),
                    fmt::format("{}", one.messages)});
  }
  return fmt::format("{} rank{}, {} microbatch{}, times in {}\n{}bubble, exposed communication and peak live "
                     "of the worst rank; "
                     "live in activations of all layers of a rank\n\n",
                     ranks, ranks == 1 ? "" : "s", microbatches, microbatches == 1 ? "" : "es", costs.unit,
                     costs_line(costs)) +
         table(rows) + (refusals.empty() ? "" : "\n" + refusals);
}

std::string compare_json(std::vector<compared> const& all, layer_costs const& costs, int ranks,
                         int microbatches) {
  ordered_json pipelines = ordered_json::array();
  for (compared const& one : all) {
    if (!one.refused.empty()) {
      pipelines.push_back({{"pipeline", one.name}, {"refused", one.refused}});
      continue;
    }
    pipelines.push_back({{"pipeline", one.name},
                         {"chunks", one.chunks},
                         {"makespan", one.makespan},
                         {"ratio_to_ideal", one.ratio},
                         {"bubble", one.bubble},
                         {"exposed_communication", one.exposed},
                         {"peak_live", one.peak_live},
                         {"messages", one.messages}});
  }
  ordered_json const file = {{"ranks", ranks},
                             {"microbatches", microbatches},
                             {"costs", costs_json(costs)},
                             {"pipelines", pipelines}};
  return file.dump(2) + '\n';
}

} // namespace plan_program
