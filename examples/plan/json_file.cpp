#include "json_file.hpp"

#include "usage.hpp"

#include <filesystem>
#include <fstream>
#include <ios>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/core.h>

namespace plan_program {

namespace {

using nlohmann::json;

constexpr std::size_t deepest_nesting = 8, most_held = 1'000'000;

/// Reads at most `largest` bytes, so that an endless or huge file is refused and not held.
std::string read_file(std::string const& flag, std::string const& path, std::size_t largest,
                      std::string const& instead) {
  std::error_code problem;
  std::ifstream file;
  // A pipe without a writer would hold the program up.
  if (std::filesystem::is_regular_file(path, problem)) file.open(path, std::ios::binary);
  std::string text;
  while (file.good() && text.size() <= largest) {
    constexpr std::size_t piece = 1 << 20;
    std::size_t const read = text.size();
    text.resize(read + piece);
    file.read(text.data() + read, piece);
    text.resize(read + static_cast<std::size_t>(file.gcount()));
  }
  if (!file.is_open() || file.bad() || (file.fail() && !file.eof()))
    throw usage_error(fmt::format("{}: cannot read '{}'; give {}", flag, shown_path(path), instead));
  if (text.size() > largest)
    throw usage_error(
        fmt::format("{}: '{}' is longer than {} bytes; give {}", flag, shown_path(path), largest, instead));
  return text;
}

/// Takes what the parser reads, up to the first reason to refuse it. What `json::parse` makes cannot be used: its callback, which
/// would tell of a key that an object has twice, looks through all members beside each one; and a long array fills the memory.
class receiver final : public nlohmann::json_sax<json> {
public:
  explicit receiver(element_function const& element) : element_(element) {}

  json& whole() { return whole_; }
  /// What is wrong, as it follows the name of the file; empty if nothing is.
  std::string const& refusal() const { return refusal_; }
  /// Whether that is a key that stands there twice.
  bool repeated() const { return repeated_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, string_t const&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return begin(json::object()); }
  bool end_object() override { return end(); }
  bool start_array(std::size_t) override { return begin(json::array()); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    repeated_ = open_.back().value.contains(name);
    if (repeated_) return refuse(fmt::format("has the key '{}' twice in one object", shown(name)));
    open_.back().key = std::move(name);
    return true;
  }
  bool parse_error(std::size_t, std::string const&, json::exception const& error) override {
    // Behind the name of the exception; it quotes what it could not read.
    std::string const what = error.what();
    return refuse(fmt::format("is not JSON: {}", shown_path(what.substr(what.find("] ") + 2))));
  }

private:
  struct part {
    json value;
    std::size_t held_before = 0;
    std::string key = {}; ///< of the member that comes next
  };

  bool refuse(std::string what) {
    refusal_ = std::move(what);
    return false;
  }
  bool begin(json value) {
    open_.push_back({std::move(value), held_});
    return open_.size() <= deepest_nesting ||
           refuse(fmt::format("nests deeper than {} levels", deepest_nesting));
  }
  bool end() {
    part done = std::move(open_.back());
    open_.pop_back();
    if (is_element()) held_ = done.held_before;
    return add(std::move(done.value));
  }
  bool is_element() const {
    return element_ && open_.size() == 2 && open_[0].value.is_object() && open_[1].value.is_array();
  }
  bool add(json value) {
    if (open_.empty()) {
      whole_ = std::move(value);
    } else if (is_element()) {
      element_(open_.front().key, value);
    } else if (++held_ > most_held) {
      return refuse(fmt::format("holds more than {} values", most_held));
    } else if (auto& [parent, held, name] = open_.back(); parent.is_array()) {
      parent.push_back(std::move(value));
    } else {
      parent.emplace(std::move(name), std::move(value));
    }
    return true;
  }

  element_function const& element_;
  std::vector<part> open_; ///< objects and arrays, each in the one before
  json whole_;
  std::size_t held_ = 0;
  std::string refusal_;
  bool repeated_ = false;
};

} // namespace

json read_json(std::string const& flag, std::string const& path, std::size_t largest,
               std::string const& instead, element_function const& element) {
  std::string const content = read_file(flag, path, largest, instead);
  receiver parts(element);
  if (json::sax_parse(content, &parts)) return std::move(parts.whole());
  throw usage_error(fmt::format("{}: '{}' {}; {}", flag, shown_path(path), parts.refusal(),
                                parts.repeated() ? "leave one of them out" : "give " + instead));
}

} // namespace plan_program
