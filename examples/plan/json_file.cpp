#include "json_file.hpp"

#include "usage.hpp"

#include <filesystem>
#include <fstream>
#include <ios>
#include <set>
#include <system_error>
#include <vector>

#include <fmt/core.h>

namespace plan_program {

namespace {

constexpr std::size_t deepest_nesting = 8;

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

/// Reads JSON without holding it, up to the first reason to refuse it. The callback of `json::parse` would tell a key that an
/// object has twice as well, of which JSON keeps the last, but after each object it looks through all others beside it.
class objections final : public nlohmann::json_sax<nlohmann::json> {
public:
  /// What is wrong, as it follows the name of the file; empty if nothing is.
  std::string const& found() const { return found_; }
  /// Whether that is a key that stands there twice.
  bool repeated() const { return repeated_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, string_t const&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return begin(); }
  bool end_object() override { return end(); }
  bool start_array(std::size_t) override { return begin(); }
  bool end_array() override { return end(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    repeated_ = true;
    found_ = fmt::format("has the key '{}' twice in one object", shown(name));
    return false;
  }
  bool parse_error(std::size_t, std::string const&, nlohmann::json::exception const& error) override {
    // Behind the name of the exception; it quotes what it could not read.
    std::string const what = error.what();
    found_ = fmt::format("is not JSON: {}", shown_path(what.substr(what.find("] ") + 2)));
    return false;
  }

private:
  bool begin() {
    keys_.emplace_back();
    if (keys_.size() <= deepest_nesting) return true;
    found_ = fmt::format("nests deeper than {} levels", deepest_nesting);
    return false;
  }
  bool end() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> keys_; ///< of each object and array that is open
  std::string found_;
  bool repeated_ = false;
};

} // namespace

nlohmann::json read_json(std::string const& flag, std::string const& path, std::size_t largest,
                         std::string const& instead) {
  std::string const content = read_file(flag, path, largest, instead);
  objections against;
  if (nlohmann::json::sax_parse(content, &against)) return nlohmann::json::parse(content);
  throw usage_error(fmt::format("{}: '{}' {}; {}", flag, shown_path(path), against.found(),
                                against.repeated() ? "leave one of them out" : "give " + instead));
}

} // namespace plan_program
