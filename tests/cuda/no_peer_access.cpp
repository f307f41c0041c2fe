#include "gpu/exchanges.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>

using namespace test;
using pusher = cuda::peer_exchange<host::communicator>;

TEST_CASE("where GPUs do not reach each other rows go through host memory, and programs can ask", "[cuda]") {
  auto const all_push = [](int gpus) {
    std::atomic<int> pushing = 0;
    host::group group(2);
    group.run([&](int rank) {
      use_gpu_of(rank, gpus);
      pushing += make_exchange<pusher>(group, rank).pushes();
    });
    return pushing == 2;
  };
  CHECK(all_push(2));
  ::setenv("STRETTO_NO_PEER_ACCESS", "1", 1);
  CHECK_FALSE(all_push(2));
  CHECK(all_push(1));
  CHECK(wrong_rounds<pusher>({.ranks = 4, .gpus = 2}) == 0);
  CHECK(wrong_replays<pusher>({.ranks = 2, .gpus = 2, .rounds = 3}, 3) == 0);
  ::unsetenv("STRETTO_NO_PEER_ACCESS");
}
