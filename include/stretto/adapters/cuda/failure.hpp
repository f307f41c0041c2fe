#pragma once

#include <stretto/timeline.hpp>

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// Why a step ended early. `op` means nothing where the failure has no op: work on the GPU fails later than its call.
struct failure {
  int rank = 0;
  bool in_op = false;
  op_label op{};
  std::string reason;
  std::exception_ptr original{};
};

/// Thrown by `drain`; the exception of the op itself is nested.
class step_error : public std::runtime_error {
public:
  explicit step_error(failure const& what)
      : std::runtime_error("rank " + std::to_string(what.rank) +
                           (what.in_op ? ": " + short_name(what.op) : "") + " failed: " + what.reason),
        rank(what.rank), in_op(what.in_op), op(what.op) {}

  int rank;
  bool in_op;
  op_label op;
};

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

  [[noreturn]] static void raise(failure const& what) {
    if (!what.original) throw step_error(what);
    try {
      std::rethrow_exception(what.original);
    } catch (...) {
      std::throw_with_nested(step_error(what));
    }
  }

private:
  bool failed_ = false;
  failure first_;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
