#include "gpu/message_checks.hpp"
#include "gpu/process_messages.hpp"

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

TEST_CASE("where GPUs do not reach each other processes are refused, all with one sentence", "[cuda]") {
  ::setenv("STRETTO_NO_PEER_ACCESS", "1", 1);
  auto const refused = [](shared_exchange& ranks) {
    use_gpu_of(ranks.rank(), 2);
    std::string rows, messages;
    try {
      auto const exchange = make_process_exchange(ranks, std::chrono::seconds(5));
    } catch (cuda::no_peer_access const& problem) {
      rows = problem.what();
    }
    named_mail mail(ranks);
    try {
      message_processes<numbers> const peers(ranks, mail);
    } catch (cuda::no_peer_access const& problem) {
      messages = problem.what();
    }
    std::string const reason =
        "the GPU of rank 0 (0000:00:00.0) cannot reach the memory of that of rank 1 (0000:01:00.0)";
    return rows == "process_exchange: " + reason && messages == "process_peers: " + reason;
  };
  CHECK(count_true(2, refused) == 2);
  ::unsetenv("STRETTO_NO_PEER_ACCESS");
}
