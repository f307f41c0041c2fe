#pragma once

#include <stretto/adapters/host/clock.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>

namespace stretto {
inline namespace v0 {
namespace host {

/// The link that an all-to-all between ranks of one process is made to take as long as. It is a model, not a
/// measurement of communication: whatever prints its times says `describe`'s text or "modelled" beside them.
struct link_model {
  /// Of one rank, in each direction. 0: no limit.
  double gigabits_per_second = 0;
  /// From the moment when all ranks have arrived.
  double microseconds = 0;

  bool present() const noexcept { return gigabits_per_second > 0 || microseconds > 0; }

  /// How long the model takes for what one rank sends to and receives from the others.
  double transfer_us(std::size_t bytes_out, std::size_t bytes_in) const noexcept {
    double const bits = 8.0 * static_cast<double>((std::max)(bytes_out, bytes_in));
    return microseconds + (gigabits_per_second > 0 ? bits / (gigabits_per_second * 1e3) : 0.0);
  }
};

/// `link modelled: 10 Gb/s, 5 us`, or `no link modelled`.
inline std::string describe(link_model const& link) {
  if (!link.present()) return "no link modelled";
  auto const number = [](double value) {
    std::string text = std::to_string(value);
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
    return text;
  };
  std::string const rate = link.gigabits_per_second > 0 ? number(link.gigabits_per_second) + " Gb/s"
                                                        : std::string("no limit of bandwidth");
  return "link modelled: " + rate + ", " + number(link.microseconds) + " us";
}

/// Sleeps until `when` and wakes within a few microseconds of it on a machine that is not overloaded. A plain sleep
/// wakes 60 to 80 us late on Linux (timer slack and wake-up); each thread learns its own lateness and aims that much
/// earlier, then spins for the few microseconds that are left. A wait shorter than the lateness is spun through.
inline void sleep_precisely_until(clock::time_point when) {
  using std::chrono::microseconds;
  thread_local clock::duration lateness = microseconds(60);
  clock::time_point const aim = when - lateness;
  if (clock::now() < aim) {
    std::this_thread::sleep_until(aim);
    // Small steps follow the median; now and then a thread wakes milliseconds late, and that is not to be learnt. Nor is
    // the lateness of an overloaded machine: spinning for longer would take the core from those who compute.
    clock::duration const error = (clock::now() - aim) - lateness;
    lateness += std::clamp<clock::duration>(error / 4, microseconds(-4), microseconds(4));
    lateness = std::min<clock::duration>(lateness, microseconds(120));
  }
  while (clock::now() < when) {
  }
}

} // namespace host
} // namespace v0
} // namespace stretto
