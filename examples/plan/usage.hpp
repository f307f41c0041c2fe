#pragma once

#include "../shared/words.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>

namespace plan_program {

using examples::counted;
using examples::listed;
using examples::nearest;
using examples::shown;
using examples::shown_path;
using examples::shown_sentence;

/// The user asked for something that cannot be: what, where and how to mend it, in one line.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The whole number in `text`. Throws usage_error that names `flag` and the range.
int whole_number(std::string const& flag, std::string const& text, int least, int most);
std::int64_t whole_number(std::string const& flag, std::string const& text, std::int64_t least,
                          std::int64_t most);

} // namespace plan_program
