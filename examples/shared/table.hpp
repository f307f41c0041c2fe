#pragma once

#include <string>
#include <vector>

namespace examples {

/// Columns as wide as their widest cell; the first to the left, the others to the right. `ruled`: a line under the first row.
std::string aligned(std::vector<std::vector<std::string>> const& rows, bool ruled = false);

} // namespace examples
