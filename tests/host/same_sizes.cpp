#include "support.hpp"

#include <stretto/same_sizes.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>

#include <cstddef>
#include <limits>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

using namespace test;

namespace {

/// What ranks that are given these sizes are told: one sentence for all of them, or nothing.
std::string told(std::vector<sizes> const& given) {
  host::group group(static_cast<int>(given.size()));
  std::mutex mutex;
  std::multiset<std::string> said;
  group.run([&](int rank) {
    auto all = group.communicator(rank);
    std::string mine;
    try {
      require_same_sizes(all, given[static_cast<std::size_t>(rank)]);
    } catch (std::invalid_argument const& refusal) {
      mine = refusal.what();
    }
    std::lock_guard const lock(mutex);
    said.insert(mine);
  });
  REQUIRE(said.size() == given.size());
  CHECK(said.count(*said.begin()) == given.size());
  return *said.begin();
}

std::string refused(std::string const& facts) {
  return "stretto[E74]: the ranks of a run are given sizes that do not fit together: " + facts +
         "; give all of them the same microbatches, ranks and chunks, and every rank of the pipeline to "
         "equally many";
}

} // namespace

TEST_CASE("ranks that are given the same sizes go on, whatever grid they make", "[sizes]") {
  CHECK(told({{}}).empty());
  for (int stages : {1, 2, 3})
    for (int experts : {1, 2, 3}) {
      std::vector<sizes> by_stage, by_expert;
      for (int a = 0; a < stages; ++a)
        for (int b = 0; b < experts; ++b)
          by_stage.push_back({.microbatches = 6, .ranks = stages, .rank = a, .chunks = 2});
      for (int b = 0; b < experts; ++b)
        for (int a = 0; a < stages; ++a)
          by_expert.push_back({.microbatches = 6, .ranks = stages, .rank = a, .chunks = 2});
      CHECK(told(by_stage).empty());
      CHECK(told(by_expert).empty());
    }
}

TEST_CASE("sizes that differ are told on every rank, with both values", "[sizes]") {
  CHECK(told({{.microbatches = 4}, {.microbatches = 3}}) ==
        refused(".microbatches is 4 on rank 0 and 3 on rank 1"));
  CHECK(told({{4, 2, 0}, {4, 2, 1}, {4, 2, 0}, {5, 2, 1}}) ==
        refused(".microbatches is 4 on rank 0 and 5 on rank 3"));
  CHECK(told({{4, 2, 0}, {4, 1, 0}}) == refused(".ranks is 2 on rank 0 and 1 on rank 1"));
  CHECK(told({{4, 2, 0, 2}, {4, 2, 1, 0}}) == refused(".chunks is 2 on rank 0 and 0 on rank 1"));
  constexpr int most = std::numeric_limits<int>::max(), least = std::numeric_limits<int>::min();
  CHECK(told({{most}, {least}}) ==
        refused(".microbatches is 2147483647 on rank 0 and -2147483648 on rank 1"));
}

TEST_CASE("ranks of the pipeline that are missing, doubled or not there are told", "[sizes]") {
  // Counted from one.
  CHECK(told({{4, 2, 1}, {4, 2, 2}}) == refused(".rank is 2 on rank 1, not from 0 to 1"));
  CHECK(told({{4, 2, 0}, {4, 2, -1}}) == refused(".rank is -1 on rank 1, not from 0 to 1"));
  CHECK(told({{4, 2, 0}, {4, 2, 0}}) == refused(".rank is 0 on 2 of 2 ranks, and should be on 1"));
  CHECK(told({{4, 2, 1}, {4, 2, 1}}) == refused(".rank is 0 on 0 of 2 ranks, and should be on 1"));
  CHECK(told({{4, 2, 0}, {4, 2, 0}, {4, 2, 1}, {4, 2, 0}}) ==
        refused(".rank is 0 on 3 of 4 ranks, and should be on 2"));
  // The number of all ranks where that of the pipeline belongs, and the other way round.
  CHECK(told({{4, 4, 0}, {4, 4, 1}}) == refused(".ranks is 4, of which 2 is no multiple"));
  CHECK(told({{4, 2, 0}, {4, 2, 1}, {4, 2, 0}}) == refused(".ranks is 2, of which 3 is no multiple"));
  for (int none : {0, -1, std::numeric_limits<int>::max(), std::numeric_limits<int>::min()})
    CHECK(told({{4, none, 0}, {4, none, 1}}) ==
          refused(".ranks is " + std::to_string(none) + ", of which 2 is no multiple"));
}
