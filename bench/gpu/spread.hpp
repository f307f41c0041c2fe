#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace bench {

/// The value below which that part of `values` lies, the nearest one there is.
inline double quantile(std::vector<double> values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

struct spread {
  double median = 0, p10 = 0, p90 = 0;
};
inline spread spread_of(std::vector<double> const& values) {
  return {quantile(values, 0.5), quantile(values, 0.1), quantile(values, 0.9)};
}

} // namespace bench
