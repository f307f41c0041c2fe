#include "gpu/exchanges.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdlib>

using namespace test;

TEST_CASE("a step whose nodes the GPU has no room for is launched by the host, and why is told", "[cuda]") {
  device_bytes const from(bytes(64, 7)), to(bytes(64, 0));
  auto const step = [&] {
    cuda::check(cudaMemcpyAsync(to.data(), from.data(), to.size(), cudaMemcpyDeviceToDevice,
                                cuda::thread_stream{}.current()),
                "cudaMemcpyAsync");
  };
  cuda::step_graph<> graph;
  graph.launch_by(cuda::graph_launch::by_gpu);
  graph.warm(step);
  cuda::check(cudaMemset(to.data(), 0, to.size()), "cudaMemset");
  ::setenv("STRETTO_NO_ROOM_FOR_BODIES", "1", 1);
  CHECK_NOTHROW(graph.capture(step));
  ::unsetenv("STRETTO_NO_ROOM_FOR_BODIES");
  REQUIRE(graph.is_captured());
  CHECK(graph.launched_by() == cuda::graph_launch::by_host);
  CHECK_THAT(graph.why_by_host(), Catch::Matchers::StartsWith("cudaGraphUpload: "));
  CHECK(to.to_host() == bytes(64, 0));
  graph.replay();
  graph.wait();
  CHECK(to.to_host() == bytes(64, 7));
  // The next capture is asked anew.
  graph.capture(step);
  CHECK(graph.launched_by() == cuda::graph_launch::by_gpu);
  CHECK(graph.why_by_host().empty());
}
