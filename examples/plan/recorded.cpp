#include "recorded.hpp"

#include "json_file.hpp"
#include "usage.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>
#include <tuple>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace plan_program {

namespace {

using nlohmann::json;

constexpr std::size_t largest_file = std::size_t{1} << 28;
constexpr double latest_us = 1e13;
constexpr int most_ranks = 4096, most_layers = 4096, most_microbatches = 1'000'000;

/// What a trace must say of its run, and the numbers among it with their largest value.
constexpr char const* words[] = {"policy",  "pipeline", "batch",  "seq",    "hidden", "heads",     "ffn",
                                 "experts", "top_k",    "shared", "device", "dtype",  "link_gbps", "link_us"};
constexpr std::pair<char const*, int> numbers[] = {
    {"pp", most_ranks},     {"ep", most_ranks},      {"microbatches", most_microbatches},
    {"chunks", most_ranks}, {"layers", most_layers}, {"dense", most_layers}};

std::optional<int> whole(std::string_view text, int most) {
  int value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value >= 0 && value <= most) return value;
  return std::nullopt;
}

/// Where it is one: `get` would cut a fraction off, and bits of a long number.
std::optional<int> whole_number(json const& number, int most) {
  if (!number.is_number_integer()) return std::nullopt;
  auto const value = number.get<std::int64_t>();
  if (value < 0 || value > most) return std::nullopt;
  return static_cast<int>(value);
}

std::optional<stretto::pass> pass_of(char letter) {
  for (auto const each : {stretto::pass::forward, stretto::pass::backward, stretto::pass::backward_input,
                          stretto::pass::backward_weight})
    if (*stretto::letter_of(each) == letter) return each;
  return std::nullopt;
}

std::optional<stretto::phase_kind> phase_of(std::string_view name) {
  for (auto const each : {stretto::phase_kind::attn, stretto::phase_kind::dispatch, stretto::phase_kind::mlp,
                          stretto::phase_kind::combine, stretto::phase_kind::mtp})
    if (stretto::name_of(each) == name) return each;
  return std::nullopt;
}

/// `F.attn L2 mb3`, on its lane and rank.
std::optional<stretto::span> op_of(json const& event) {
  try {
    auto const name = event.at("name").get<std::string>();
    auto const space = name.find(' ');
    if (space == std::string::npos || space < 3 || name[1] != '.') return std::nullopt;
    auto const what = pass_of(name[0]);
    auto const phase = phase_of(std::string_view(name).substr(2, space - 2));
    auto const rank = whole_number(event.at("pid"), most_ranks * most_ranks - 1),
               lane = whole_number(event.at("tid"), 1);
    // The embedding and the head are layers too.
    auto const layer = whole_number(event.at("args").at("layer"), most_layers + 1),
               microbatch = whole_number(event.at("args").at("microbatch"), most_microbatches);
    double const start = event.at("ts").get<double>(), length = event.at("dur").get<double>();
    if (!what || !phase || !rank || !lane || !layer || !microbatch) return std::nullopt;
    if (!(std::abs(start) <= latest_us && length >= 0 && length <= latest_us)) return std::nullopt;
    return stretto::span{{*phase, *what, static_cast<stretto::lane>(*lane), *layer, *microbatch},
                         *rank,
                         start / 1000,
                         (start + length) / 1000};
  } catch (json::exception const&) {
    return std::nullopt;
  }
}

} // namespace

int recorded_step::number(std::string const& key) const { return *whole(text(key), 1'000'000); }

recorded_step read_trace(std::string const& flag, std::string const& path) {
  constexpr char const* instead = "a file that train_moe --trace wrote";
  recorded_step step;
  std::string no_op;
  json const file =
      read_json(flag, path, largest_file, instead, [&](std::string const& key, json const& event) {
        if (key != "traceEvents" || !event.is_object() || event.value("ph", json()) != "X" ||
            event.value("cat", json()) == "messages")
          return;
        if (auto const op = op_of(event))
          step.ops.push_back(*op);
        else if (no_op.empty())
          no_op = event.dump();
      });
  auto const refuse = [&](std::string const& what) {
    throw usage_error(fmt::format("{}: '{}' {}; give {}", flag, shown_path(path), what, instead));
  };
  step.path = shown_path(path);
  if (!file.is_object() || !file.contains("traceEvents") || !file["traceEvents"].is_array() ||
      !file.contains("otherData") || !file["otherData"].is_object())
    refuse("is no trace");
  for (auto const& [key, value] : file["otherData"].items())
    if (value.is_string()) step.about[key] = shown(value.get<std::string>());
  for (char const* const key : words)
    if (!step.about.contains(key)) refuse(fmt::format("does not say the {} of its run", key));
  for (auto const& [key, most] : numbers)
    if (!step.about.contains(key) || !whole(step.about[key], most) ||
        (*whole(step.about[key], most) == 0 && std::string_view(key) != "dense"))
      refuse(fmt::format("does not say the {} of its run", key));
  if (!no_op.empty()) refuse(fmt::format("has an event that is no op: {}", shown(no_op)));
  if (step.ops.empty()) refuse("has no ops");
  std::stable_sort(step.ops.begin(), step.ops.end(), [](stretto::span const& a, stretto::span const& b) {
    return std::tie(a.rank, a.label.on, a.start_us) < std::tie(b.rank, b.label.on, b.start_us);
  });
  return step;
}

} // namespace plan_program
