#pragma once

#include <stretto/adapters/cuda/failure.hpp>
#include <stretto/detail/waiting_time.hpp>

#include <chrono>
#include <functional>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// What an exchange is told about its ranks.
struct exchange_options {
  /// How long a call waits on the host for a rank that does not come.
  stretto::detail::waiting_milliseconds deadline = std::chrono::seconds(30);
  /// Whether the step of these ranks has failed, mostly a look at the board of their group; asked from several threads.
  std::function<bool()> failed{};
  /// Called with true before a call waits on the host for the other ranks, and with false behind it. Who holds what one rank
  /// at a time may have, such as a capture that all share, lets go of it in between.
  std::function<void(bool)> waits{};
  /// Between processes: told, on a thread of its own, when streams are let go although what they wait for has not come; mostly
  /// reports it to the board, where lanes learn that their step has failed. `rank` is that of the exchange.
  std::function<void(failure const&)> report{};
};

namespace detail {

/// Around a wait for other ranks.
class waiting_for_ranks {
public:
  explicit waiting_for_ranks(exchange_options const& of) : waiting_for_ranks(of.waits) {}
  explicit waiting_for_ranks(std::function<void(bool)> const& waits) : waits_(waits) {
    if (waits_) waits_(true);
  }
  waiting_for_ranks(waiting_for_ranks const&) = delete;
  waiting_for_ranks& operator=(waiting_for_ranks const&) = delete;
  ~waiting_for_ranks() {
    if (waits_) waits_(false);
  }

private:
  std::function<void(bool)> const& waits_;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
