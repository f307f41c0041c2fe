#include "usage.hpp"

#include <charconv>
#include <system_error>

#include <fmt/core.h>

namespace plan_program {

int whole_number(std::string const& flag, std::string const& text, int least, int most) {
  return static_cast<int>(whole_number(flag, text, std::int64_t{least}, std::int64_t{most}));
}

std::int64_t whole_number(std::string const& flag, std::string const& text, std::int64_t least,
                          std::int64_t most) {
  std::int64_t value = 0;
  auto const [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc{} && end == text.data() + text.size() && value >= least && value <= most)
    return value;
  throw usage_error(
      fmt::format("{} takes a whole number from {} to {}, not '{}'", flag, least, most, shown(text)));
}

} // namespace plan_program
