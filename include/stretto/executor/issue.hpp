#pragma once

#include <stretto/adapter.hpp>
#include <stretto/check.hpp>
#include <stretto/detail/sequence.hpp>
#include <stretto/plan.hpp>

/// What the host of one rank issues in a step, in order: the same step as a flat table of ops, and as the list that the
/// executor walks through. Both are written by one walker (see executor/flatten.hpp), so that what is checked is what runs.
namespace stretto {
inline namespace v0 {

/// A flat table with the sizes of its cells.
struct flat_table {
  detail::sequence<op> ops;
  int groups = 0;
  int layers = 0;

  /// For a whole step: every pass once, and nothing that races.
  diagnosis check() const {
    int const count = static_cast<int>(ops.size());
    if (diagnosis const wrong = check_table(ops.data(), count, groups, layers)) return wrong;
    return check_passes(ops.data(), count, layers);
  }
  int waits() const {
    int count = 0;
    for (op const& o : ops)
      for (int w : o.wait) count += w >= 0;
    return count;
  }
};

namespace detail {

/// How the events between bodies and messages are numbered: two ports for each slot, then two messages for each chunk and
/// slot.
struct event_numbers {
  int slots = 0;
  int chunks = 0;

  constexpr int port(bool forward, int slot) const { return 2 * slot + !forward; }
  constexpr int sent(bool gradient, int chunk, int slot) const {
    return 2 * slots + 2 * (slot * chunks + chunk) + gradient;
  }
  constexpr int count() const { return 2 * slots * (1 + chunks); }
};

enum class issue_kind : unsigned char { receive, body, send };

/// One side of a body.
struct issue_side {
  int layer = -1; ///< -1: the body has no such side
  int slot = -1;
  int microbatch = -1;
  int waits = -1; ///< the event of what spoke last for the microbatch; -1 if nothing did
  unsigned known = ~0U; ///< lanes that need not wait for it (`bit_of`)
  int records = -1; ///< the event that stands for what this side hands over
  int message = -1; ///< what leaves the rank as soon as the side has handed over; -1: nothing
};

/// A message that comes in or leaves.
struct issue_message {
  message what{};
  lane on = lane::compute;
  int chunk = -1;
  int slot = -1;
  int point = -1; ///< of the chain, where the values lie
  int waits = -1; ///< the event before which it cannot start
  bool known = false; ///< the lane has seen it by other ways
  int records = -1; ///< the event that stands for it
};

struct issue {
  issue_kind what = issue_kind::body;
  form shape = form::forward; ///< of a body
  issue_side f, b; ///< of a body
  int message = -1; ///< of a message
};

struct issue_list {
  flat_table table;
  sequence<issue> list;
  sequence<issue_message> messages;
  int slots = 0;
  int events = 0;
};

} // namespace detail
} // namespace v0
} // namespace stretto
