#pragma once

#include <stretto/adapter.hpp>

#include <exception>
#include <stdexcept>
#include <string>

namespace stretto {
inline namespace v0 {

/// Why a step ended early: the first thing that went wrong on any rank of a group.
struct failure {
  int rank = 0;
  /// False where the rank failed outside of an op: on its host thread, say, or on a GPU, where work fails later than its
  /// call. `op` means nothing then.
  bool in_op = false;
  op_label op{};
  std::string reason;
  std::exception_ptr original{};
};

/// `F.mlp of layer 3, microbatch 2`, or for a message `receive of stage 1's gradient, microbatch 2`.
inline std::string describe(op_label const& op) {
  std::string const number = std::to_string(op.layer);
  std::string const what =
      is_message(op) ? std::string(is_send(op.on) ? "send" : "receive") + " of stage " + number + "'s " +
                           (op.what == pass::forward ? "activation" : "gradient")
                     : std::string(letter_of(op.what)) + "." + name_of(op.phase) + " of layer " + number;
  return what + ", microbatch " + std::to_string(op.microbatch);
}

/// One sentence that names rank, op, microbatch and the first line of the reason: behind it may be a list of calls.
inline std::string describe(failure const& what) {
  return "rank " + std::to_string(what.rank) + (what.in_op ? ": " + describe(what.op) : std::string()) +
         " failed: " + what.reason.substr(0, what.reason.find('\n'));
}

/// Thrown by `drain` of lanes, on every rank of a group when an op failed on one of them. `rank`, `op` and `reason` are
/// those of the rank where it began, `reason` with all its lines; the exception of the op itself is nested (`std::rethrow_if_nested`).
class step_error : public std::runtime_error {
public:
  explicit step_error(failure const& what)
      : std::runtime_error(describe(what)), rank(what.rank), in_op(what.in_op), op(what.op),
        reason(what.reason) {}

  int rank;
  bool in_op;
  op_label op;
  std::string reason;
};

/// Throws the `step_error` of `what`, with its exception nested.
[[noreturn]] inline void throw_step_error(failure const& what) {
  if (!what.original) throw step_error(what);
  try {
    std::rethrow_exception(what.original);
  } catch (...) {
    std::throw_with_nested(step_error(what));
  }
}

} // namespace v0
} // namespace stretto
