#include "message_checks.hpp"
#include "process_messages.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace test;

// Nothing here may touch CUDA before it forks.
TEST_CASE("messages of device memory between processes keep the laws of peers", "[gpu]") {
  int const gpus = GENERATE(1, 2);
  if (is_left_out_of_processes(gpus)) return;
  need_gpus_of_machine(gpus);
  auto const keeps = [&](shared_exchange& ranks) {
    use_gpu_of(ranks.rank(), gpus);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    named_mail mail(ranks);
    message_processes<numbers> peers(ranks, mail);
    bool const all = keeps_the_laws_of_peers(peers, ranks.rank(), own.get());
    ranks.barrier();
    return all;
  };
  CHECK(count_true(2, keeps) == 2);
}

TEST_CASE("messages along a pipeline of processes, under random delays, step after step", "[gpu]") {
  int const gpus = GENERATE(1, 2);
  if (is_left_out_of_processes(gpus)) return;
  need_gpus_of_machine(gpus);
  auto const all_right = [&](shared_exchange& ranks) {
    use_gpu_of(ranks.rank(), gpus);
    host::failure_board board;
    peer_lanes lanes({.rank = ranks.rank(), .peers = true}, {}, &board);
    named_mail mail(ranks);
    message_processes<numbers> peers(ranks, mail, {}, {}, settings_of(ranks.rank(), board));
    return wrong_along_a_pipeline(peers, lanes, ranks.rank(), ranks.ranks()) == 0;
  };
  int const ranks = times(4, 3);
  CHECK(count_true(ranks, all_right) == ranks);
}

TEST_CASE("what processes drop behind a send or a read is not written over too early", "[gpu]") {
  int const gpus = GENERATE(1, 2);
  bool const gradient = GENERATE(false, true);
  if (is_left_out_of_processes(gpus)) return;
  need_gpus_of_machine(gpus);
  auto const all_right = [&](shared_exchange& ranks) {
    use_gpu_of(ranks.rank(), gpus);
    host::failure_board board;
    peer_lanes lanes({.rank = ranks.rank(), .peers = true}, {}, &board);
    named_mail mail(ranks);
    memory_of_streams const library;
    message_processes<memory_of_streams> peers(ranks, mail, library, {}, settings_of(ranks.rank(), board));
    return overwritten(peers, library, lanes, ranks.rank(), gradient) == 0;
  };
  CHECK(count_true(2, all_right) == 2);
}

TEST_CASE("a process that has sent leaves when its messages have been fetched", "[gpu]") {
  auto const arrives = [](shared_exchange& ranks) {
    use_gpu_of(ranks.rank(), 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    named_mail mail(ranks);
    numbers const library;
    std::optional<message_processes<numbers>> peers(std::in_place, ranks, mail);
    bool right = true;
    for (int i = 0; i < 20; ++i) {
      message const name{false, 0, i, 0, 1 - ranks.rank()};
      if (ranks.rank() == 0)
        peers->send(name, library.of(std::vector<int>(100000, i)));
      else
        right = library.read(peers->receive(name)) == std::vector<int>(100000, i) && right;
      // Rank 0 is gone before the other fetches the last.
      if (i == 18) ranks.barrier();
    }
    peers.reset();
    return right;
  };
  CHECK(count_true(2, arrives) == 2);
}

TEST_CASE("a message between processes in a capture is refused", "[gpu]") {
  auto const is_refused = [](shared_exchange& ranks) {
    use_gpu_of(ranks.rank(), 1);
    named_mail mail(ranks);
    message_processes<numbers> peers(ranks, mail);
    auto const content = numbers{}.of({1, 2, 3});
    cuda::step_graph<> graph;
    graph.warm([] {});
    std::string said;
    try {
      graph.capture([&] { peers.send({false, 0, 0, 0, 1 - ranks.rank()}, content); });
    } catch (std::logic_error const& problem) {
      said = problem.what();
    }
    ranks.barrier();
    return said == "process_peers: a message between processes cannot be captured";
  };
  CHECK(count_true(2, is_refused) == 2);
}
