#pragma once

#include <stretto/adapters/host/clock.hpp>
#include <stretto/adapters/host/failure.hpp>

#include <string>

namespace stretto {
inline namespace v0 {
namespace host {

/// What ranks of a group may block in, and what a failed step leaves something behind in.
class participant {
public:
  /// Wakes whoever is blocked, to look at the board.
  virtual void wake() = 0;
  /// Forgets what was interrupted. Nobody is at work on a step.
  virtual void forget() = 0;

protected:
  ~participant() = default;
};

/// For a call that finds that the group has failed.
[[noreturn]] inline void give_up(std::string const& call, failure_board const& board) {
  failure const first = board.first();
  throw communicator_error(call + " given up: " + describe(first), first.rank);
}

/// `0.25 s`
inline std::string seconds(clock::duration of) {
  std::string const text = std::to_string(std::chrono::duration<double>(of).count());
  return text.substr(0, text.find('.') + 3) + " s";
}

} // namespace host
} // namespace v0
} // namespace stretto
