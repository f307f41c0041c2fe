#include "gpu/forked_ranks.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

using Catch::Matchers::ContainsSubstring;
using std::chrono::seconds;
using test::shared_exchange;

namespace {

constexpr seconds limit(20);
constexpr double at_once = 5; ///< seconds, on a machine that is busy

template <class Body>
std::vector<test::outcome> run(int ranks, Body const& body, std::chrono::seconds until = limit) {
  return test::run_forked(
      ranks, [](int) {}, body, until);
}

/// How a rank leaves the others alone.
enum class way { thrown, returned, killed };

[[nodiscard]] std::string leave(way how) {
  if (how == way::thrown) throw std::runtime_error("no room on its GPU");
  if (how == way::killed) ::raise(SIGKILL);
  return "wrong";
}

} // namespace

TEST_CASE("ranks at a barrier are told at once that another has ended, and what it said", "[forked]") {
  way const how = GENERATE(way::thrown, way::returned, way::killed);
  int const ranks = GENERATE(2, 3, 8);
  auto const found = run(ranks, [&](int rank, shared_exchange host) {
    if (rank == 1) return leave(how);
    host.barrier();
    return std::string("went on alone");
  });
  for (int rank = 0; rank < ranks; ++rank) {
    auto const& one = found[static_cast<std::size_t>(rank)];
    CAPTURE(static_cast<int>(how), ranks, rank, one.said, one.seconds);
    CHECK(one.ended);
    CHECK(one.seconds < at_once);
    if (rank == 1) continue;
    CHECK_THAT(one.said, ContainsSubstring("threw: rank 1 has ended before a barrier: '"));
    if (how == way::thrown) CHECK_THAT(one.said, ContainsSubstring("'threw: no room on its GPU'"));
    if (how == way::returned) CHECK_THAT(one.said, ContainsSubstring("'wrong'"));
  }
}

TEST_CASE("a rank that waits for a letter is told that its sender has ended, and has what came before",
          "[forked]") {
  way const how = GENERATE(way::thrown, way::returned, way::killed);
  auto const found = run(2, [&](int rank, shared_exchange host) {
    test::shared_mail<int> mail(host.board(), rank);
    if (rank == 1) {
      mail.send({false, 0, 0, 0, 0}, 7);
      return leave(how);
    }
    // The letter is read when its sender is gone.
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (mail.receive({false, 0, 0, 0, 1}) != 7) return std::string("another letter");
    return std::to_string(mail.receive({false, 0, 1, 0, 1}));
  });
  CAPTURE(static_cast<int>(how), found[0].said);
  CHECK(found[0].seconds < at_once);
  CHECK_THAT(found[0].said, ContainsSubstring("threw: rank 1 has ended before its letter: '"));
}

TEST_CASE("a barrier that all have come to is passed by all, however soon one of them ends", "[forked]") {
  for (int round = 0; round < 40; ++round) {
    auto const found = run(4, [&](int rank, shared_exchange host) {
      for (int i = 0; i < 20; ++i) host.barrier();
      if (rank == round % 4) throw std::runtime_error("its own");
      return std::string("passed");
    });
    for (int rank = 0; rank < 4; ++rank)
      CHECK(found[static_cast<std::size_t>(rank)].said == (rank == round % 4 ? "threw: its own" : "passed"));
  }
}

TEST_CASE("ranks that wait for one that hangs say so before they would be killed", "[forked]") {
  auto const found = run(
      3,
      [](int rank, shared_exchange host) {
        if (rank == 1) std::this_thread::sleep_for(seconds(600));
        if (rank == 2)
          return std::to_string(test::shared_mail<int>(host.board(), 2).receive({false, 0, 0, 0, 1}));
        host.barrier();
        return std::string("went on alone");
      },
      seconds(2));
  CHECK(found[0].ended);
  CHECK(found[2].ended);
  CHECK_FALSE(found[1].ended);
  // One of the two is told first; the other may learn it from that.
  CHECK_THAT(found[0].said + found[2].said, ContainsSubstring("threw: waited too long for "));
  CHECK_THAT(found[2].said, ContainsSubstring("threw: waited too long for a letter of rank 1"));
}
