#include "gpu/exchanges.hpp"

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <chrono>
#include <cstdlib>

using namespace test;

TEST_CASE("ranks that share a graph wait for as long as it takes to be made, whatever their deadline",
          "[cuda]") {
  ::setenv("STRETTO_SLOW_GRAPHS", "1", 1);
  host::group group(2);
  group.add_domain();
  std::atomic<int> captured = 0;
  group.run([&](int rank) {
    graph_of_all graph({}, {}, group.communicator(rank, 1), {}, std::chrono::milliseconds(300));
    graph.warm([] {});
    graph.capture([] {});
    captured += graph.is_captured();
  });
  CHECK(captured == 2);
  ::unsetenv("STRETTO_SLOW_GRAPHS");
}
