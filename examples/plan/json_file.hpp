#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

namespace plan_program {

/// Called for each element of an array that is a member of the top object, with the key of that member.
using element_function = std::function<void(std::string const& key, nlohmann::json const& value)>;

/// The JSON in the file at `path` that `flag` names. Throws usage_error in one sentence if it cannot be read, is longer than
/// `largest` bytes or is no JSON; `instead` says what to give. With `element`, elements go to it and the arrays stay empty, so
/// that a long one is not held.
nlohmann::json read_json(std::string const& flag, std::string const& path, std::size_t largest,
                         std::string const& instead, element_function const& element = {});

} // namespace plan_program
