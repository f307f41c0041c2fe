#include "exchanges.hpp"

#include <stretto/adapters/cuda/flags.hpp>
#include <stretto/adapters/cuda/peer_exchange.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace test;
using Catch::Matchers::ContainsSubstring;
using pusher = cuda::peer_exchange<host::communicator>;
static_assert(row_exchange<pusher>);

TEST_CASE("pushed rows reach the ranks they are for, call after call", "[gpu]") {
  int const ranks = GENERATE(1, 2, 3, 5), gpus = GENERATE(1, 2);
  rows_of const rows = GENERATE(random_rows, no_rows, rows_to_the_first, rows_to_oneself, many_rows);
  auto const row_bytes = static_cast<std::size_t>(rows == many_rows ? 515 : GENERATE(2, 1030));
  if (is_left_out(ranks, 3, gpus)) return;
  need_gpus(gpus);
  if (rows == many_rows && ranks > 3) return;
  CAPTURE(ranks, gpus, row_bytes);
  CHECK(wrong_rounds<pusher>({.ranks = ranks,
                              .gpus = gpus,
                              .rows = rows,
                              .row_bytes = row_bytes,
                              .rounds = rows == many_rows ? 3 : 6}) == 0);
}

TEST_CASE("parts of pushed rows come sorted, and go back", "[gpu]") {
  int const ranks = GENERATE(1, 2, 3), parts = GENERATE(1, 2, 5), gpus = GENERATE(1, 2);
  rows_of const rows = GENERATE(random_rows, no_rows, rows_to_oneself);
  if (is_left_out(ranks, 3, gpus) || (under_a_tool() && parts != 2)) return;
  need_gpus(gpus);
  CAPTURE(ranks, parts, gpus);
  CHECK(wrong_parts<pusher>({.ranks = ranks, .gpus = gpus, .rows = rows, .row_bytes = 6, .rounds = 4},
                            parts) == 0);
}

TEST_CASE("ranks that disagree about parts are told", "[gpu]") {
  host::group group(2);
  std::vector<std::string> told(2);
  group.run([&](int rank) {
    auto rows_between = make_exchange<pusher>(group, rank, std::chrono::milliseconds(300));
    device_bytes const memory(bytes(64));
    std::vector<int> const one(4, 1);
    try {
      rows_between.all_to_all_parts(memory.data(), one.data(), memory.data() + 32, one.data(), 2, 1 + rank,
                                    true);
    } catch (std::exception const& problem) {
      told[static_cast<std::size_t>(rank)] = problem.what();
    }
  });
  CHECK_THAT(told[0] + told[1], ContainsSubstring("parts and rank"));
  CHECK(!told[0].empty());
  CHECK(!told[1].empty());
}

TEST_CASE("pushed rows arrive under random delays, 200 calls ahead", "[gpu]") { check_delays<pusher>(); }

TEST_CASE("replays of pushes bring what eager calls bring", "[gpu]") { check_replays<pusher>(); }

TEST_CASE("ranks that disagree about pushed rows are told, all of them", "[gpu]") {
  host::group group(3);
  std::vector<std::string> told(3);
  CHECK_THROWS(group.run([&](int rank) {
    rank_lanes lanes({.rank = rank}, {}, &group.board());
    auto rows_between = make_exchange<pusher>(group, rank);
    device_bytes const memory(bytes(64));
    std::vector<int> const out = rank == 0 ? std::vector<int>{0, 2, 0} : std::vector<int>{0, 0, 0};
    std::vector<int> const in = rank == 1 ? std::vector<int>{3, 0, 0} : std::vector<int>{0, 0, 0};
    for (int i = 0; i < 2; ++i)
      lanes.run(lane::comm, dispatch_op, [&] {
        rows_between.all_to_all(memory.data(), out.data(), memory.data() + 32, in.data(), 8);
        // Rank 2 has no part in what is wrong, and learns of it in the next call at the latest.
        if (rank == 2) rows_between.all_to_all(memory.data(), out.data(), memory.data() + 32, in.data(), 8);
      });
    try {
      lanes.drain();
    } catch (std::exception const& problem) {
      told[static_cast<std::size_t>(rank)] = problem.what();
      throw;
    }
  }));
  for (auto const& each : told)
    CHECK_THAT(each, ContainsSubstring("rank 0 sends 16 bytes to rank 1, which expects 24"));
}

TEST_CASE("a rank that pushes itself other rows than it makes room for is told", "[gpu]") {
  CHECK(said_of_own_rows<pusher>() == "peer_exchange: rank 0 sends 2 rows to itself and expects 3");
}

TEST_CASE("a rank that does not come to a push is named before long", "[gpu]") {
  host::group group(2);
  std::string told;
  group.run([&](int rank) {
    auto rows_between = make_exchange<pusher>(group, rank, std::chrono::milliseconds(300));
    if (rank == 1) return;
    device_bytes const memory(bytes(64));
    std::vector<int> const one{1, 1};
    try {
      rows_between.all_to_all(memory.data(), one.data(), memory.data() + 32, one.data(), 8);
    } catch (std::exception const& problem) {
      told = problem.what();
    }
  });
  CHECK(told == "call 1 of a peer_exchange: rank 1 did not come within 300 ms");
}

TEST_CASE("the longest deadline that can be said is no deadline that is over", "[gpu]") {
  host::group group(2);
  std::vector<char> came(2);
  group.run([&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    auto rows_between = make_exchange<pusher>(group, rank, std::chrono::milliseconds::max());
    if (rank == 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    device_bytes const memory(bytes(64));
    int const none[] = {0, 0};
    rows_between.all_to_all(memory.data(), none, memory.data() + 32, none, 8);
    came[static_cast<std::size_t>(rank)] = 1;
  });
  CHECK(came == std::vector<char>{1, 1});
}

TEST_CASE("the rows that a rank keeps do not wait for the other ranks", "[gpu]") {
  host::group group(2);
  std::optional<round_data> data[2];
  bool were_there = false;
  group.run([&](int rank) {
    use_gpu_of(rank, 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    auto exchange = make_exchange<pusher>(group, rank);
    auto& mine = data[rank].emplace(round_bytes(rank, 2, 0, 0, many_rows, 64));
    group.communicator(rank).barrier();
    if (rank == 1) were_there = has_come(*data[0], 0, 64);
    mine.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    group.communicator(rank).barrier();
  });
  CHECK(were_there);
  CHECK_FALSE(data[0]->is_wrong());
  CHECK_FALSE(data[1]->is_wrong());
}

TEST_CASE("behind a push that has failed nothing of it is still to be copied", "[gpu]") {
  if (under_initcheck())
    SKIP("under initcheck nothing is issued behind a stream that waits for the same thread");
  host::group group(2);
  bool were_there = false;
  group.run([&](int rank) {
    use_gpu_of(rank, 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    auto exchange = make_exchange<pusher>(group, rank, std::chrono::milliseconds(100));
    if (rank == 1) return;
    // Enough to take a while.
    std::size_t const row_bytes = 2048;
    round_data const data(round_bytes(0, 2, 0, 0, many_rows, row_bytes));
    cuda::host_flags held(1);
    cuda::flag_ops().wait_for(held[0], 1).issue(own.get());
    try {
      data.issue(exchange, row_bytes, own.get());
    } catch (std::runtime_error const&) {
      held.set(0, 1);
      cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
      were_there = is_there(data, 0, row_bytes);
    }
  });
  CHECK(were_there);
}

TEST_CASE("one rank captures and the other does not: both are told", "[gpu]") {
  host::group group(2);
  std::vector<std::string> told(2);
  group.run([&](int rank) {
    auto rows_between = make_exchange<pusher>(group, rank);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    device_bytes const memory(bytes(64));
    std::vector<int> const one{1, 1};
    if (rank == 0)
      cuda::check(cudaStreamBeginCapture(own.get(), cudaStreamCaptureModeThreadLocal),
                  "cudaStreamBeginCapture");
    try {
      rows_between.all_to_all(memory.data(), one.data(), memory.data() + 32, one.data(), 8);
    } catch (std::exception const& problem) {
      told[static_cast<std::size_t>(rank)] = problem.what();
    }
    cudaGraph_t unfinished = nullptr;
    if (rank == 0) static_cast<void>(cudaStreamEndCapture(own.get(), &unfinished));
    static_cast<void>(cudaGetLastError());
    if (unfinished) static_cast<void>(cudaGraphDestroy(unfinished));
  });
  // Whoever looks second may find that the other has given up.
  CHECK_THAT(told[0] + told[1],
             ContainsSubstring("are not in the same capture; capture the streams of all ranks together"));
  CHECK(!told[0].empty());
  CHECK(!told[1].empty());
}

TEST_CASE("a step with pushed rows that fails on one rank ends on both, and the next one runs", "[gpu]") {
  CHECK(ends_together_and_goes_on<pusher>());
}
