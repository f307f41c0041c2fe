#pragma once

#include <stretto/failure.hpp>

#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// Where the lanes of a rank alone note the first op that failed. Ranks that are threads of one process share the board
/// of their group instead, which has the same members.
class failure_note {
public:
  bool failed() const noexcept { return failed_; }
  void report(failure what) {
    if (!std::exchange(failed_, true)) first_ = std::move(what);
  }
  failure first() const { return first_; }
  void clear() {
    first_ = {};
    failed_ = false;
  }

private:
  bool failed_ = false;
  failure first_;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
