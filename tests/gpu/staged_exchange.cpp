#include "exchanges.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using namespace test;
using stager = cuda::staged_exchange<host::communicator>;
static_assert(row_exchange<stager>);

TEST_CASE("rows reach the ranks they are for, call after call", "[gpu]") {
  int const ranks = GENERATE(1, 2, 3, 5), gpus = GENERATE(1, 2);
  rows_of const rows = GENERATE(random_rows, no_rows, rows_to_the_first, rows_to_oneself, many_rows);
  auto const row_bytes = static_cast<std::size_t>(rows == many_rows ? 515 : GENERATE(2, 1030));
  if (is_left_out(ranks, 3, gpus)) return;
  need_gpus(gpus);
  if (rows == many_rows && ranks > 3) return;
  CAPTURE(ranks, gpus, row_bytes);
  CHECK(wrong_rounds<stager>({.ranks = ranks,
                              .gpus = gpus,
                              .rows = rows,
                              .row_bytes = row_bytes,
                              .rounds = rows == many_rows ? 3 : 6}) == 0);
}

TEST_CASE("staged rows arrive under random delays, 200 calls ahead, on every GPU", "[gpu]") {
  check_delays<stager>();
}

TEST_CASE("replays of staged calls bring what eager calls bring", "[gpu]") { check_replays<stager>(); }

TEST_CASE("ranks that disagree about rows are told, all of them", "[gpu]") {
  host::group group(2);
  std::vector<std::string> told(2);
  CHECK_THROWS(group.run([&](int rank) {
    rank_lanes lanes({.rank = rank}, {}, &group.board());
    stager rows_between(group.communicator(rank));
    device_bytes const memory(bytes(64));
    std::vector<int> const out = rank == 0 ? std::vector<int>{0, 2} : std::vector<int>{0, 0};
    std::vector<int> const in = rank == 0 ? std::vector<int>{0, 0} : std::vector<int>{3, 0};
    for (int i = 0; i < 2; ++i)
      lanes.run(lane::comm, dispatch_op, [&] {
        rows_between.all_to_all(memory.data(), out.data(), memory.data() + 32, in.data(), 8);
      });
    try {
      lanes.drain();
    } catch (std::exception const& problem) {
      told[static_cast<std::size_t>(rank)] = problem.what();
      throw;
    }
  }));
  for (auto const& each : told)
    CHECK_THAT(each, Catch::Matchers::ContainsSubstring(
                         "rank 0 sends 16 bytes to rank 1, which expects 3 rows of 8"));
}

TEST_CASE("a rank that stages other rows for itself than it makes room for is told", "[gpu]") {
  CHECK(said_of_own_rows<stager>() == "staged_exchange: rank 0 sends 2 rows to itself and expects 3");
}

TEST_CASE("a step with staged rows that fails on one rank ends on both, and the next one runs", "[gpu]") {
  CHECK(ends_together_and_goes_on<stager>());
}
