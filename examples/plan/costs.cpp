#include "costs.hpp"

#include "json_file.hpp"
#include "usage.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <system_error>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace plan_program {

namespace {

using nlohmann::json;

constexpr double smallest_cost = 1e-6, largest_cost = 1e12;
constexpr std::size_t longest_unit = 12;

/// Reads the members of one object; what is missing, unknown or of the wrong type is named by its path.
class reader {
public:
  reader(std::string const& path, json const& object, std::string place)
      : path_(path), object_(object), place_(std::move(place)) {
    if (!object.is_object()) fail(fmt::format("{} is not an object", place_.empty() ? "the top" : place_));
  }

  void only(std::vector<std::string> const& keys) const {
    for (auto const& member : object_.items()) {
      if (std::find(keys.begin(), keys.end(), member.key()) == keys.end()) {
        std::string const near = nearest(member.key(), keys);
        fail(fmt::format("there is no key '{}'; {}", shown(at(member.key())),
                         near.empty() ? "there are " + listed(keys)
                                      : fmt::format("did you mean '{}'?", at(near))));
      }
    }
  }
  bool has(std::string const& key) const { return object_.contains(key); }
  json const& member(std::string const& key) const {
    if (!has(key)) fail(fmt::format("'{}' is missing", at(key)));
    return object_.at(key);
  }
  double number(std::string const& key) const {
    json const& value = member(key);
    if (!value.is_number()) fail(fmt::format("'{}' is {}, not a number", at(key), value.type_name()));
    double const result = value.get<double>();
    if (!(result == 0 || (result >= smallest_cost && result <= largest_cost))) {
      fail(fmt::format("'{}' is {}; a cost is 0 or lies between {} and {}", at(key), result, smallest_cost,
                       largest_cost));
    }
    return result;
  }
  std::string text(std::string const& key, std::string const& otherwise) const {
    if (!has(key)) return otherwise;
    if (!object_.at(key).is_string()) fail(fmt::format("'{}' is not a string", at(key)));
    return shown(object_.at(key).get<std::string>());
  }
  reader inside(std::string const& key) const { return {path_, member(key), at(key)}; }
  [[noreturn]] void fail(std::string const& what) const {
    throw usage_error(fmt::format("--costs: {} in '{}'", what, shown_path(path_)));
  }

private:
  std::string at(std::string const& key) const { return place_.empty() ? key : place_ + "." + key; }

  std::string const& path_;
  json const& object_;
  std::string place_;
};

layer_costs from_json(std::string const& path, json const& file) {
  reader const top(path, file, "");
  top.only({"name", "source", "unit", "forward", "backward_input", "backward_weight", "message",
            "layers_per_rank"});
  layer_costs costs;
  costs.name = top.text("name", shown_path(path));
  costs.source = top.text("source", "");
  costs.unit = top.text("unit", "ms");
  if (costs.unit.size() > longest_unit ||
      !std::all_of(costs.unit.begin(), costs.unit.end(), [](unsigned char letter) {
        return std::isalnum(letter) != 0 || letter == ' ' || letter == '/' || letter == '%';
      }))
    top.fail(fmt::format("'unit' is '{}'; give a short word such as ms", costs.unit));
  auto const four = [&](std::string const& key) {
    reader const phases = top.inside(key);
    phases.only({"attn", "dispatch", "mlp", "combine"});
    return layer_costs::phases{phases.number("attn"), phases.number("dispatch"), phases.number("mlp"),
                               phases.number("combine")};
  };
  costs.forward = four("forward");
  costs.input = four("backward_input");
  reader const weight = top.inside("backward_weight");
  weight.only({"attn", "mlp"});
  costs.weight = {weight.number("attn"), 0, weight.number("mlp"), 0};
  if (top.has("message")) costs.message = top.number("message");
  if (top.has("layers_per_rank")) costs.layers_per_rank = top.number("layers_per_rank");
  stretto::chunk_costs const chunk = costs.chunk(1);
  if (!(chunk.forward_compute > 0) || !(chunk.input_compute > 0)) {
    top.fail("a layer without compute in forward or backward_input cannot be simulated; make attn or mlp "
             "positive");
  }
  return costs;
}

} // namespace

stretto::chunk_costs layer_costs::chunk(int chunks) const {
  stretto::chunk_costs const layer{forward.attn + forward.mlp, forward.dispatch + forward.combine,
                                   input.attn + input.mlp,     input.dispatch + input.combine,
                                   weight.attn + weight.mlp,   message};
  return layer.scaled(layers_per_rank / chunks);
}

std::vector<layer_costs> const& cost_presets() {
  static std::vector<layer_costs> const presets = {
      {"unit",
       "F = I = W, no communication, as in the formulas of arXiv 2401.10241",
       "units",
       {1, 0, 0, 0},
       {1, 0, 0, 0},
       {1, 0, 0, 0},
       0,
       2},
      {"deepseek_h800",
       "deepseek-ai/profile-data train.json (H800, 4 MoE layers, EP64, TP1, 4K tokens)",
       "ms",
       {4.4, 6.7, 4.6, 8.7},
       {9.3, 7.5, 5.3, 5.8},
       {2.4, 0, 5.1, 0},
       0,
       8},
  };
  return presets;
}

bool is_preset(std::string const& name) {
  return std::any_of(cost_presets().begin(), cost_presets().end(),
                     [&](layer_costs const& preset) { return preset.name == name; });
}

layer_costs find_costs(std::string const& text) {
  std::vector<std::string> names;
  for (layer_costs const& preset : cost_presets()) {
    if (preset.name == text) return preset;
    names.push_back(preset.name);
  }
  std::error_code problem;
  if (!std::filesystem::exists(text, problem)) {
    std::string const near = nearest(text, names);
    throw usage_error(fmt::format("--costs: '{}' is neither a file nor a preset ({}); {}", shown_path(text),
                                  listed(names),
                                  near.empty() ? "check the path" : fmt::format("did you mean '{}'?", near)));
  }
  json const file = read_json("--costs", text, 1 << 20,
                              fmt::format("a preset ({}) or a JSON file of a dozen numbers", listed(names)));
  if (file.is_object() && file.contains("traceEvents"))
    throw usage_error(fmt::format(
        "--costs: '{}' is a trace, with the costs of another traced step's ops; name that step with "
        "--measured TRACE",
        shown_path(text)));
  return from_json(text, file);
}

} // namespace plan_program
