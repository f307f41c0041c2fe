#pragma once

#include <stretto/detail/config.hpp>
#include <stretto/rules.hpp>

#include <string>

namespace stretto {
inline namespace v0 {

/// What an exception says of a broken rule: the sentence of the rule with its subject in front and the facts before the
/// remedy.
STRETTO_COLD inline std::string sentence_of(fault what, std::string const& subject, std::string const& facts) {
  std::string const text = rule_of(what).sentence;
  auto const begin = text.find("]: ") + 3, remedy = text.find(';');
  return text.substr(0, begin) + (subject.empty() ? "" : subject + ": ") + text.substr(begin, remedy - begin) +
         facts + text.substr(remedy);
}

} // namespace v0
} // namespace stretto
