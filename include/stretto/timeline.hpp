#pragma once

#include <stretto/adapter.hpp>

namespace stretto {
inline namespace v0 {

/// One op that ran (or was simulated) on one rank. Times are microseconds since a moment common to all ranks.
struct span {
  op_label label;
  int rank;
  double start_us;
  double end_us;
};

} // namespace v0
} // namespace stretto
