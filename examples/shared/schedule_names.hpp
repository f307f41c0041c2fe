#pragma once

#include <span>
#include <string>

namespace examples {

/// The name among `known` that `word` means: in any case, with any separators or none, or as others call that schedule
/// (1f1b, zbv). `word` itself where it means none of them.
std::string schedule_name(std::string const& word, std::span<std::string const> known);

/// What others call the pipelines, for a help text: `1f1b, zbv`.
std::string other_schedule_names();

} // namespace examples
