#pragma once

#include "exchanges.hpp"
#include "forked_ranks.hpp"

#include <stretto/adapters/cuda/process_exchange.hpp>

#include <cstdio>

/// Exchanges of device rows between forked processes. Nothing may touch CUDA before it forks.
namespace test {

using exchange_of_processes = cuda::process_exchange<shared_exchange>;
static_assert(row_exchange<exchange_of_processes>);

/// Runs `body(ranks)` in a process for each rank. How many of them returned true; who hangs is killed.
template <class Body> int count_true(int ranks, Body const& body) {
  auto const found = run_forked(
      ranks, [](int) {},
      [&](int, shared_exchange of_rank) { return std::string(body(of_rank) ? "right" : "wrong"); },
      std::chrono::seconds(30));
  int right = 0;
  for (auto const& each : found) {
    // A rank that a test kills or stops says nothing.
    if (each.stopped || (each.ended && WIFSIGNALED(each.status))) continue;
    if (each.ended && each.said == "right")
      ++right;
    else
      std::fprintf(stderr, "a rank %s: '%s'\n", each.ended ? "ended" : "hung", each.said.c_str());
  }
  return right;
}

inline exchange_of_processes make_process_exchange(shared_exchange const& ranks,
                                                   std::chrono::milliseconds deadline,
                                                   std::function<bool()> failed = {}) {
  return exchange_of_processes(ranks, cuda::thread_stream{},
                               cuda::exchange_options{deadline, std::move(failed), {}});
}

} // namespace test
