#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json.hpp>

namespace plan_program {

/// The JSON in the file at `path` that `flag` names. Throws usage_error in one sentence if it cannot be read, is longer than
/// `largest` bytes or is no JSON; `instead` says what to give.
nlohmann::json read_json(std::string const& flag, std::string const& path, std::size_t largest,
                         std::string const& instead);

} // namespace plan_program
