#include "usage.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <numeric>

#include <fmt/core.h>

namespace plan_program {

namespace {

std::size_t edits(std::string const& left, std::string const& right) {
  std::vector<std::size_t> row(right.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= left.size(); ++i) {
    std::size_t corner = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= right.size(); ++j) {
      std::size_t const kept = corner + (left[i - 1] == right[j - 1] ? 0U : 1U);
      corner = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, kept});
    }
  }
  return row.back();
}

} // namespace

std::string nearest(std::string const& text, std::vector<std::string> const& names) {
  std::string const start = text.substr(0, 64);
  return *std::min_element(names.begin(), names.end(),
                           [&](std::string const& left, std::string const& right) {
                             return edits(start, left) < edits(start, right);
                           });
}

std::string listed(std::vector<std::string> const& names) {
  std::string text;
  for (std::string const& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string counted(long number, char const* one, char const* more) {
  return fmt::format("{} {}", number, number == 1 ? one : more);
}

std::string shown(std::string const& text) {
  std::string result;
  for (char const letter : text.substr(0, 60)) result += letter >= ' ' && letter <= '~' ? letter : '?';
  return result + (text.size() > 60 ? "..." : "");
}

int whole_number(std::string const& flag, std::string const& text, int least, int most) {
  int value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most)
    return value;
  throw usage_error(
      fmt::format("{} takes a whole number from {} to {}, not '{}'", flag, least, most, shown(text)));
}

} // namespace plan_program
