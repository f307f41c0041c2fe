#pragma once

#include "words.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace examples {

/// What is wrong with flags that CLI11 would take without a word, in one sentence; empty if nothing is. It takes the next
/// flag for the value of one that has none, and `=0` switches a flag off.
inline std::string misused_flag(CLI::App const& app, int count, char const* const* words) {
  auto const flag_of = [&](std::string const& word) {
    return word.rfind("--", 0) == 0 ? app.get_option_no_throw(word.substr(0, word.find('='))) : nullptr;
  };
  std::set<std::string> given;
  for (int at = 1; at < count; ++at) {
    std::string const word = words[at];
    auto const* const flag = flag_of(word);
    if (flag == nullptr) continue;
    auto const equals = word.find('=');
    std::string const name = word.substr(0, equals);
    bool const joined = equals != std::string::npos;
    if (flag->get_items_expected_min() == 0) {
      if (joined) return name + " takes no value; leave out the = and what follows it";
      continue;
    }
    if (!given.insert(name).second) return name + " is given twice; leave one out";
    if (!joined) ++at;
    std::string const value = joined ? word.substr(equals + 1) : at < count ? words[at] : "";
    if (value.empty() || (!joined && flag_of(value) != nullptr))
      return name + " has no value; --help shows how each flag is given";
  }
  return {};
}

/// The first argument that `app` does not know, and the flag that it was probably meant to be.
inline std::string unknown_argument(CLI::App const& app) {
  // What is no flag may be the value of one that was not known.
  auto const unknown = app.remaining();
  auto found =
      std::find_if(unknown.begin(), unknown.end(), [](auto const& each) { return each.rfind("--", 0) == 0; });
  if (found == unknown.end()) found = unknown.begin();
  std::vector<std::string> known;
  for (auto const* option : app.get_options()) known.push_back(option->get_name());
  auto const near = nearest(found->substr(0, found->find('=')), known);
  return "unknown argument '" + shown(*found) + "'; " +
         (near.empty() ? "--help lists all flags" : "did you mean " + near + "?");
}

} // namespace examples
