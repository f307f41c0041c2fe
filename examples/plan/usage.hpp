#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace plan_program {

/// The user asked for something that cannot be: what, where and how to mend it, in one line.
struct usage_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The name among `names` that takes the fewest edits to get from `text`.
std::string nearest(std::string const& text, std::vector<std::string> const& names);

/// The names with commas between.
std::string listed(std::vector<std::string> const& names);

/// `1 rank`, `2 ranks`.
std::string counted(long number, char const* one, char const* more);

/// A piece of the user's text that is safe and short enough to show on one line.
std::string shown(std::string const& text);

/// The whole number in `text`. Throws usage_error that names `flag` and the range.
int whole_number(std::string const& flag, std::string const& text, int least, int most);

} // namespace plan_program
