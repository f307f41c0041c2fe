#include "report.hpp"

#include "usage.hpp"

#include "../shared/table.hpp"

#include <stretto/plan/messages.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace plan_program {

namespace {

using examples::aligned;
using nlohmann::ordered_json;

ordered_json costs_json(layer_costs const& costs) {
  return {{"name", costs.name}, {"source", costs.source}, {"unit", costs.unit}};
}

/// Where the figures come from, and what they leave out.
std::string method(layer_costs const& costs, int layers) {
  std::string const source =
      fmt::format("costs: {}{}\n", costs.name, costs.source.empty() ? "" : ", " + costs.source);
  if (layers == 0) return source + "a call alone takes its phases in turn, a pair its longer lane\n";
  return source +
         fmt::format("{} replayed phase by phase: every lane in order, every op after what it waits for\n",
                     counted(layers, "MoE layer", "MoE layers"));
}

/// `1.5 GiB`.
std::string binary_bytes(double bytes) {
  constexpr char const* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 ? 0 : 2, units[unit]);
}

/// What a layer is taken to keep, where somebody said so.
std::string kept(layer_costs const& costs, double layers) {
  if (!(costs.layer_bytes > 0)) return {};
  return fmt::format("a rank has {} {}, and each keeps {} of a microbatch\n", short_number(layers),
                     layers == 1 ? "layer" : "layers", binary_bytes(costs.layer_bytes));
}

/// Whole as far as an integer goes.
ordered_json bytes_json(double bytes) {
  if (bytes < 9e18) return std::llround(bytes);
  return bytes;
}

/// The worst rank's.
double worst(report const& one, double rank_time::*which) {
  double most = 0;
  for (rank_time const& rank : one.ranks) most = std::max(most, rank.*which);
  return most;
}

} // namespace

std::string with_percent(double value, double whole) {
  return fmt::format("{} ({:4.1f}%)", short_number(value), whole > 0 ? 100 * value / whole : 0.0);
}

std::string title_of(stretto::plan_facts const& facts) {
  return fmt::format("{}, {}, {}{}", facts.name, counted(facts.ranks, "rank", "ranks"),
                     counted(facts.microbatches, "microbatch", "microbatches"),
                     facts.chunks == 1 ? "" : fmt::format(", {} chunks a rank", facts.chunks));
}

report report_of(picture const& one) {
  report result;
  result.facts = one.facts();
  result.makespan = one.run.makespan(), result.ideal = one.run.ideal();
  result.rank_bytes = one.costs.layer_bytes * one.costs.layers_per_rank;
  for (int rank = 0; rank < one.facts().ranks; ++rank) {
    stretto::rank_report const& from = one.run.rank(rank);
    result.ranks.push_back({from.compute, from.comm, from.exposed, one.run.bubble(rank),
                            static_cast<double>(from.peak_live) / one.facts().chunks});
    for (long at = 0; at < one.of.size(rank); ++at)
      result.messages += stretto::detail::sent_by(one.facts(), rank, one.of.calls(rank)[at]).count;
  }
  return result;
}

report report_of(phase_replay const& one, layer_costs const& costs) {
  report result;
  result.facts = one.facts, result.layers = one.layers;
  result.makespan = one.makespan, result.ideal = one.ideal;
  result.ranks = one.ranks, result.messages = one.messages;
  result.rank_bytes = costs.layer_bytes * one.layers / one.facts.ranks;
  return result;
}

std::string report_table(report const& one, layer_costs const& costs) {
  bool const calls = one.layers == 0;
  std::vector<std::vector<std::string>> rows = {{"rank", "compute", "communication", "exposed communication",
                                                 "bubble", calls ? "peak live chunks" : "peak live"}};
  if (one.rank_bytes > 0) rows.front().emplace_back("peak live bytes");
  for (std::size_t rank = 0; rank < one.ranks.size(); ++rank) {
    rank_time const& from = one.ranks[rank];
    rows.push_back({fmt::format("{}", rank), short_number(from.compute), short_number(from.comm),
                    with_percent(from.exposed, one.makespan), with_percent(from.bubble, one.makespan),
                    calls ? fmt::format("{:.0f}", from.peak_live * one.facts.chunks)
                          : fmt::format("{:.2f}", from.peak_live)});
    if (one.rank_bytes > 0) rows.back().push_back(binary_bytes(from.peak_live * one.rank_bytes));
  }
  double const layers = calls ? costs.layers_per_rank : 1.0 * one.layers / one.facts.ranks;
  return fmt::format("{}\n{}{}{}makespan {} {}, ideal {} {}, ratio to ideal {:.3f}\n\n", title_of(one.facts),
                     method(costs, one.layers), calls ? "" : "live in activations of all layers of a rank\n",
                     kept(costs, layers), short_number(one.makespan), costs.unit, short_number(one.ideal),
                     costs.unit, one.ratio()) +
         aligned(rows);
}

std::string report_table(picture const& one) { return report_table(report_of(one), one.costs); }

std::string report_json(report const& one, layer_costs const& costs) {
  ordered_json ranks = ordered_json::array();
  for (std::size_t rank = 0; rank < one.ranks.size(); ++rank) {
    rank_time const& from = one.ranks[rank];
    ordered_json entry = {{"rank", rank},
                          {"compute", from.compute},
                          {"communication", from.comm},
                          {"exposed_communication", from.exposed},
                          {"bubble", from.bubble}};
    if (one.layers == 0)
      entry["peak_live_chunks"] = std::lround(from.peak_live * one.facts.chunks);
    else
      entry["peak_live"] = from.peak_live;
    if (one.rank_bytes > 0) entry["peak_live_bytes"] = bytes_json(from.peak_live * one.rank_bytes);
    ranks.push_back(entry);
  }
  ordered_json file = {{"pipeline", one.facts.name},
                       {"ranks", one.facts.ranks},
                       {"microbatches", one.facts.microbatches},
                       {"chunks", one.facts.chunks}};
  if (one.layers > 0) file["layers"] = one.layers;
  file["costs"] = costs_json(costs);
  file["makespan"] = one.makespan, file["ideal"] = one.ideal, file["ratio_to_ideal"] = one.ratio();
  file["per_rank"] = ranks;
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

std::string compare_table(std::vector<compared> const& all, layer_costs const& costs, int ranks,
                          int microbatches, int layers) {
  std::vector<std::vector<std::string>> rows = {{"pipeline", "chunks", "makespan", "ratio to ideal", "bubble",
                                                 "exposed communication", "peak live", "messages"}};
  if (costs.layer_bytes > 0) rows.front().emplace_back("peak live bytes");
  std::string refusals;
  for (compared const& one : all) {
    if (!one.refused.empty()) {
      refusals += one.refused + '\n';
      continue;
    }
    report const& numbers = one.numbers;
    rows.push_back({one.name, fmt::format("{}", numbers.facts.chunks), short_number(numbers.makespan),
                    fmt::format("{:.3f}", numbers.ratio()),
                    with_percent(worst(numbers, &rank_time::bubble), numbers.makespan),
                    with_percent(worst(numbers, &rank_time::exposed), numbers.makespan),
                    fmt::format("{:.2f}", worst(numbers, &rank_time::peak_live)),
                    fmt::format("{}", numbers.messages)});
    if (costs.layer_bytes > 0)
      rows.back().push_back(binary_bytes(worst(numbers, &rank_time::peak_live) * numbers.rank_bytes));
  }
  return fmt::format(
             "{}, {}, times in {}\n{}{}bubble, exposed communication and peak live of the worst rank; "
             "live in activations of all layers of a rank\n\n",
             counted(ranks, "rank", "ranks"), counted(microbatches, "microbatch", "microbatches"), costs.unit,
             method(costs, layers), kept(costs, layers == 0 ? costs.layers_per_rank : 1.0 * layers / ranks)) +
         aligned(rows) + (refusals.empty() ? "" : "\n" + refusals);
}

std::string compare_json(std::vector<compared> const& all, layer_costs const& costs, int ranks,
                         int microbatches, int layers) {
  ordered_json pipelines = ordered_json::array();
  for (compared const& one : all) {
    if (!one.refused.empty()) {
      pipelines.push_back({{"pipeline", one.name}, {"refused", one.refused}});
      continue;
    }
    report const& numbers = one.numbers;
    pipelines.push_back({{"pipeline", one.name},
                         {"chunks", numbers.facts.chunks},
                         {"makespan", numbers.makespan},
                         {"ratio_to_ideal", numbers.ratio()},
                         {"bubble", worst(numbers, &rank_time::bubble)},
                         {"exposed_communication", worst(numbers, &rank_time::exposed)},
                         {"peak_live", worst(numbers, &rank_time::peak_live)},
                         {"messages", numbers.messages}});
    if (costs.layer_bytes > 0)
      pipelines.back()["peak_live_bytes"] =
          bytes_json(worst(numbers, &rank_time::peak_live) * numbers.rank_bytes);
  }
  ordered_json file = {{"ranks", ranks}, {"microbatches", microbatches}};
  if (layers > 0) file["layers"] = layers;
  file["costs"] = costs_json(costs);
  file["pipelines"] = pipelines;
  return file.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + '\n';
}

} // namespace plan_program
