#include "json_file.hpp"

#include "usage.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <set>
#include <system_error>
#include <vector>

#include <fmt/core.h>

namespace plan_program {

namespace {

constexpr int deepest_nesting = 8;

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

/// Recursion in a parser is bounded before the parser sees the text.
bool nested_too_deep(std::string const& text) {
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    char const letter = text[i];
    if (quoted) {
      if (letter == '\\') ++i;
      if (letter == '"') quoted = false;
    } else if (letter == '"') {
      quoted = true;
    } else if (letter == '{' || letter == '[') {
      if (++depth > deepest_nesting) return true;
    } else if (letter == '}' || letter == ']') {
      --depth;
    }
  }
  return false;
}

/// Told each part that the parser reads: finds a key that an object has twice, of which JSON would keep the last.
class repeated_key {
public:
  bool operator()(int, nlohmann::json::parse_event_t event, nlohmann::json& part) {
    if (event == nlohmann::json::parse_event_t::object_start) keys_.emplace_back();
    if (event == nlohmann::json::parse_event_t::object_end) keys_.pop_back();
    if (event == nlohmann::json::parse_event_t::key &&
        !keys_.back().insert(part.get_ref<std::string const&>()).second)
      found_ = part;
    return true;
  }
  /// Null where there is none.
  nlohmann::json const& found() const { return found_; }

private:
  std::vector<std::set<std::string>> keys_;
  nlohmann::json found_;
};

} // namespace

nlohmann::json read_json(std::string const& flag, std::string const& path, std::size_t largest,
                         std::string const& instead) {
  std::string const content = read_file(flag, path, largest, instead);
  if (nested_too_deep(content))
    throw usage_error(fmt::format("{}: '{}' nests deeper than {} levels; give {}", flag, shown_path(path),
                                  deepest_nesting, instead));
  try {
    repeated_key repeated;
    auto content_of_file = nlohmann::json::parse(content, std::ref(repeated));
    if (repeated.found().is_null()) return content_of_file;
    throw usage_error(fmt::format("{}: '{}' has the key '{}' twice in one object; leave one of them out",
                                  flag, shown_path(path), shown(repeated.found().get<std::string>())));
  } catch (nlohmann::json::exception const& error) {
    // Behind the name of the exception; it quotes what it could not read.
    std::string const what = error.what();
    throw usage_error(fmt::format("{}: '{}' is not JSON: {}; give {}", flag, shown_path(path),
                                  shown_path(what.substr(what.find("] ") + 2)), instead));
  }
}

} // namespace plan_program
