#include "table.hpp"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include <fmt/format.h>

namespace examples {

std::string aligned(std::vector<std::vector<std::string>> const& rows, bool ruled) {
  std::vector<std::size_t> widths;
  for (auto const& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (auto const& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i)
      text += i == 0 ? fmt::format("{:<{}}", row[i], widths[i]) : fmt::format("  {:>{}}", row[i], widths[i]);
    text += '\n';
    if (ruled && &row == &rows.front()) {
      auto const between = 2 * (widths.size() - 1);
      text += std::string(std::accumulate(widths.begin(), widths.end(), between), '-') + '\n';
    }
  }
  return text;
}

} // namespace examples
