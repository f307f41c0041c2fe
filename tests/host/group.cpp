#include "support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

using namespace test;

namespace {

std::size_t at(int index) { return static_cast<std::size_t>(index); }

bool contains(std::string const& text, std::string const& part) {
  return text.find(part) != std::string::npos;
}

/// Catch2's assertions are for one thread: ranks collect what they find, the test looks at it afterwards.
template <class Value> using per_rank = std::vector<Value>;

} // namespace

TEST_CASE("random all-to-alls agree with a reference, empty ranks and empty pairs included",
          "[group][building-blocks-06]") {
  auto const look = std::chrono::microseconds(GENERATE(0, 300));
  for (int const ranks : {1, 2, 3, 5}) {
    std::mt19937 random(static_cast<unsigned>(ranks));
    host::group group(ranks, {.look = look});
    for (int round = 0; round < 30; ++round) {
      std::size_t const row = 1 + random() % 7;
      // rows[s][d]; about half of the pairs are empty, in every third round one rank has nothing at all.
      std::vector<std::vector<int>> rows(at(ranks), std::vector<int>(at(ranks)));
      for (auto& from : rows)
        for (int& count : from) count = random() % 2 ? static_cast<int>(random() % 9) : 0;
      if (round % 3 == 0) std::fill(rows[0].begin(), rows[0].end(), 0);
      auto const byte_of = [](int from, int to, int index) {
        return static_cast<unsigned char>(31 * from + 7 * to + index);
      };
      per_rank<int> right(at(ranks), 0);
      group.run([&](int rank) {
        auto comm = group.communicator(rank);
        std::vector<unsigned char> send, expected;
        for (int to = 0; to < ranks; ++to)
          for (int i = 0; i < rows[at(rank)][at(to)] * static_cast<int>(row); ++i)
            send.push_back(byte_of(rank, to, i));
        for (int from = 0; from < ranks; ++from)
          for (int i = 0; i < rows[at(from)][at(rank)] * static_cast<int>(row); ++i)
            expected.push_back(byte_of(from, rank, i));
        std::vector<int> counts(at(ranks), -1);
        comm.exchange_counts(rows[at(rank)].data(), counts.data());
        bool good = true;
        for (int from = 0; from < ranks; ++from) good = good && counts[at(from)] == rows[at(from)][at(rank)];
        std::vector<unsigned char> received(expected.size(), 0xEE);
        comm.all_to_all(send.data(), rows[at(rank)].data(), received.data(), counts.data(), row);
        right[at(rank)] = good && received == expected;
      });
      CHECK(std::accumulate(right.begin(), right.end(), 0) == ranks);
    }
  }
}

TEST_CASE("sums are those of rank order, bit by bit, on every rank", "[group]") {
  for (int const ranks : {1, 2, 3, 4, 7}) {
    for (std::size_t const count : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{1001}}) {
      std::mt19937 random(static_cast<unsigned>(count) + 1);
      std::normal_distribution<float> normal(0, 1e3F);
      std::vector<std::vector<float>> floats(at(ranks), std::vector<float>(count));
      std::vector<std::vector<double>> doubles(at(ranks), std::vector<double>(count));
      for (auto& mine : floats)
        for (float& each : mine) each = normal(random);
      for (auto& mine : doubles)
        for (double& each : mine) each = static_cast<double>(normal(random)) / 3;
      std::vector<float> float_sum = floats[0];
      std::vector<double> double_sum = doubles[0];
      for (int rank = 1; rank < ranks; ++rank)
        for (std::size_t i = 0; i < count; ++i) {
          float_sum[i] += floats[at(rank)][i];
          double_sum[i] += doubles[at(rank)][i];
        }
      host::group group(ranks);
      group.run([&](int rank) {
        auto comm = group.communicator(rank);
        comm.all_reduce(floats[at(rank)].data(), count);
        comm.all_reduce(doubles[at(rank)].data(), count);
      });
      for (int rank = 0; rank < ranks; ++rank) {
        CHECK(floats[at(rank)] == float_sum);
        CHECK(doubles[at(rank)] == double_sum);
      }
    }
  }
}

TEST_CASE("gathers come in rank order", "[group]") {
  host::group group(3);
  per_rank<std::vector<double>> got(3, std::vector<double>(6));
  per_rank<std::string> letters(3, "...");
  group.run([&](int rank) {
    auto comm = group.communicator(rank);
    double const mine[] = {rank + 0.5, rank + 0.25};
    comm.all_gather(mine, 2, got[at(rank)].data());
    char const letter = static_cast<char>('a' + rank);
    comm.all_gather_bytes(&letter, 1, letters[at(rank)].data());
    comm.all_gather_bytes(nullptr, 0, nullptr);
  });
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(got[at(rank)] == std::vector<double>{0.5, 0.25, 1.5, 1.25, 2.5, 2.25});
    CHECK(letters[at(rank)] == "abc");
  }
}

TEST_CASE("nobody passes a barrier before the last has come", "[group]") {
  host::group group(4);
  std::atomic<int> came = 0;
  per_rank<int> seen(4);
  group.run([&](int rank) {
    sleep_ms(10 * rank);
    ++came;
    group.communicator(rank).barrier();
    seen[at(rank)] = came;
  });
  CHECK(seen == per_rank<int>{4, 4, 4, 4});
}

TEST_CASE("domains have orders and members of their own", "[group]") {
  host::group group(4);
  int const even = group.add_domain({0, 2});
  int const odd = group.add_domain({1, 3});
  int const second = group.add_domain();
  per_rank<double> sums(4);
  per_rank<int> places(4);
  group.run([&](int rank) {
    auto half = group.communicator(rank, rank % 2 == 0 ? even : odd);
    places[at(rank)] = half.rank() + 10 * half.ranks();
    sums[at(rank)] = rank + 1;
    half.all_reduce(&sums[at(rank)], 1);
    // Two lanes of a rank, each with its own order: rank 0 comes to them the other way round.
    std::thread other([&] {
      if (rank != 0) sleep_ms(10);
      group.communicator(rank, second).barrier();
    });
    if (rank == 0) other.join();
    group.communicator(rank).barrier();
    if (rank != 0) other.join();
  });
  CHECK(sums == per_rank<double>{4, 6, 4, 6});
  CHECK(places == per_rank<int>{20, 20, 21, 21});
  CHECK_THROWS_AS(group.communicator(1, even), std::invalid_argument);
  CHECK_THROWS_AS(group.add_domain({2, 1}), std::invalid_argument);
  CHECK_THROWS_AS(group.add_domain({0, 4}), std::invalid_argument);
  CHECK_THROWS_AS(group.add_domain({}), std::invalid_argument);
  CHECK_THROWS_AS(host::group(0), std::invalid_argument);
}

TEST_CASE("calls that do not fit together end on every rank with one sentence that names both",
          "[group][building-blocks-06]") {
  int const one_row[] = {1, 1};
  int const two_rows[] = {1, 2};
  char const send[64] = {};
  char receive[2][64];
  struct misuse {
    std::function<void(host::communicator&, int)> call;
    std::vector<std::string> parts;
  };
  std::vector<misuse> const misuses = {
      {[&](auto& comm, int rank) {
         if (rank == 0)
           comm.all_to_all(send, one_row, receive[0], one_row, 1);
         else
           comm.barrier();
       },
       {"call 2", "all_to_all on rank 0", "barrier on rank 1"}},
      {[&](auto& comm, int rank) {
         comm.all_to_all(send, rank == 0 ? two_rows : one_row, receive[rank], one_row, 1);
       },
       {"all_to_all, call 2", "rank 0 sends 2 rows to rank 1", "expects 1"}},
      {[&](auto& comm, int rank) {
         comm.all_to_all(send, one_row, receive[rank], one_row, rank == 0 ? 4 : 8);
       },
       {"rank 0 brings 4 bytes a row", "rank 1 brings 8"}},
      {[&](auto& comm, int rank) {
         double values[3] = {};
         comm.all_reduce(values, rank == 0 ? 2 : 3);
       },
       {"all_reduce of doubles", "rank 0 brings 16 bytes", "rank 1 brings 24"}},
  };
  for (misuse const& each : misuses) {
    host::group group(2);
    per_rank<std::string> said(2);
    group.run([&](int rank) {
      auto comm = group.communicator(rank);
      comm.barrier();
      try {
        each.call(comm, rank);
      } catch (host::communicator_error const& error) {
        said[at(rank)] = error.what();
      }
    });
    CHECK(said[0] == said[1]);
    for (auto const& part : each.parts) {
      CAPTURE(said[0], part);
      CHECK(contains(said[0], part));
    }
  }
}

TEST_CASE("a communicator in use by one lane refuses another", "[group][building-blocks-09]") {
  host::group group(2);
  std::string said;
  CHECK_THROWS_AS(group.run([&](int rank) {
    if (rank == 1) {
      while (!group.failed()) sleep_ms(1);
      return;
    }
    std::thread first([&] {
      try {
        group.communicator(0).barrier();
      } catch (host::communicator_error const& error) {
        group.abort(error.what(), 0);
      }
    });
    sleep_ms(30);
    try {
      auto comm = group.communicator(0);
      float value = 0;
      comm.all_reduce(&value, 1);
    } catch (host::communicator_error const& error) {
      said = error.what();
    }
    first.join();
  }),
                  step_error);
  CHECK(contains(said, "rank 0 called all_reduce of floats while its barrier was still running"));
}

TEST_CASE("the longest times that can be said do not pass", "[group]") {
  auto const look = GENERATE(std::chrono::microseconds::zero(), std::chrono::microseconds::max());
  host::group group(2, {.deadline = std::chrono::milliseconds::max(), .look = look});
  CHECK(group.deadline() > std::chrono::hours(24 * 365));
  group.run([&](int rank) {
    for (int i = 0; i < 2; ++i) {
      if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (i == 0)
        group.communicator(rank).barrier();
      else
        group.reset();
    }
  });
}

TEST_CASE("a rank that never comes is named when the deadline has passed", "[group][building-blocks-11]") {
  auto const look = std::chrono::microseconds(GENERATE(0, 500));
  host::group group(3, {.deadline = std::chrono::milliseconds(300), .look = look});
  per_rank<std::string> said(3);
  per_rank<int> named(3, -1);
  auto const begin = host::now_us();
  group.run([&](int rank) {
    auto comm = group.communicator(rank);
    comm.barrier();
    if (rank == 1) sleep_ms(700);
    try {
      comm.barrier();
    } catch (host::communicator_error const& error) {
      said[at(rank)] = error.what();
      named[at(rank)] = error.rank;
    }
  });
  CHECK(host::now_us() - begin < 3e6);
  // The late rank learns it too, instead of meeting what the others have left.
  for (int rank = 0; rank < 3; ++rank) {
    CHECK(named[at(rank)] == 1);
    CHECK(said[at(rank)] == "rank 1 did not come to barrier, call 2 of its communicator within 0.30 s");
  }
}

TEST_CASE("abort wakes whoever is blocked", "[group][building-blocks-11]") {
  host::group group(2);
  std::string said;
  int named = -1;
  auto const begin = host::now_us();
  try {
    group.run([&](int rank) {
      if (rank == 1) {
        sleep_ms(20);
        group.abort("operator asked for it", 1);
        return;
      }
      try {
        group.communicator(0).barrier();
      } catch (host::communicator_error const& error) {
        said = error.what();
        named = error.rank;
      }
    });
    FAIL("nothing was thrown");
  } catch (step_error const& error) {
    CHECK(std::string(error.what()) == "rank 1 failed: operator asked for it");
    CHECK_FALSE(error.in_op);
  }
  CHECK(named == 1);
  CHECK(said == "barrier given up: rank 1 failed: operator asked for it");
  CHECK(host::now_us() - begin < 1e6);
}

namespace {

/// A step of a few microbatches with an all-to-all in each, on the lanes of one rank.
struct step {
  host::group& group;
  int rank;
  int failing_rank = -1;
  lane failing_lane = lane::compute;
  int failing_microbatch = 0;
  host::communicator comm = group.communicator(rank);
  std::vector<int> rows = std::vector<int>(at(group.ranks()), 1);
  std::vector<int> sent = std::vector<int>(at(group.ranks()), 0);
  std::vector<int> received = std::vector<int>(at(group.ranks()), 0);
  long sum = 0;

  void issue(host::lanes& lanes) {
    host::lanes::event computed, arrived;
    for (int microbatch = 0; microbatch < 6; ++microbatch) {
      lanes.wait(lane::compute, arrived);
      lanes.run(lane::compute, label(mlp, lane::compute, 1, microbatch), [this, microbatch] {
        fail_where_asked(lane::compute, microbatch);
        sum += std::accumulate(received.begin(), received.end(), 0L);
        std::fill(sent.begin(), sent.end(), rank + microbatch);
      });
      lanes.record(lane::compute, computed);
      lanes.wait(lane::comm, computed);
      lanes.run(lane::comm, label(dispatch, lane::comm, 1, microbatch), [this, microbatch] {
        fail_where_asked(lane::comm, microbatch);
        comm.all_to_all(sent.data(), rows.data(), received.data(), rows.data(), sizeof(int));
      });
      lanes.record(lane::comm, arrived);
    }
  }
  void fail_where_asked(lane on, int microbatch) const {
    if (rank == failing_rank && on == failing_lane && microbatch == failing_microbatch)
      throw std::domain_error("made to fail");
  }
  /// Of microbatches 0 to 4, since the last op that sums reads what the fifth exchange brought.
  long right_sum() const {
    long all = 0;
    for (int microbatch = 0; microbatch < 5; ++microbatch)
      for (int from = 0; from < group.ranks(); ++from) all += from + microbatch;
    return all;
  }
};

struct outcome {
  int rank = -1;
  op_label op{};
  std::string said;
  bool nested_is_the_original = false;
  double after_us = 0;
  bool next_step_is_right = false;
};

outcome fail_then_recover(host::group& group, int rank, step&& failing, std::uint64_t seed) {
  outcome result;
  host::lanes lanes({.rank = rank, .board = &group.board(), .shake_seed = seed, .shake_us = 200});
  failing.issue(lanes);
  double const begin = host::now_us();
  try {
    lanes.drain();
  } catch (step_error const& error) {
    result.rank = error.rank;
    result.op = error.op;
    result.said = error.what();
    try {
      std::rethrow_if_nested(error);
    } catch (std::domain_error const&) {
      result.nested_is_the_original = true;
    }
  }
  result.after_us = host::now_us() - begin;
  group.reset();
  step good{group, rank};
  good.issue(lanes);
  lanes.drain();
  result.next_step_is_right = good.sum == good.right_sum();
  return result;
}

} // namespace

TEST_CASE("an op that throws on any lane of any rank ends every rank's step with one error, and the next "
          "step is right",
          "[group][failure]") {
  for (int const ranks : {1, 3})
    for (int failing_rank = 0; failing_rank < ranks; ++failing_rank)
      for (lane const on : {lane::compute, lane::comm})
        for (std::uint64_t const seed : {0u, 1u, 2u}) {
          int const microbatch = 1 + static_cast<int>(seed);
          host::group group(ranks, {.look = std::chrono::microseconds(250 * seed)});
          per_rank<outcome> outcomes(at(ranks));
          group.run([&](int rank) {
            outcomes[at(rank)] =
                fail_then_recover(group, rank, step{group, rank, failing_rank, on, microbatch}, seed);
          });
          for (outcome const& each : outcomes) {
            CHECK(each.rank == failing_rank);
            CHECK(each.op.on == on);
            CHECK(each.op.phase == (on == lane::compute ? mlp : dispatch));
            CHECK(each.op.layer == 1);
            CHECK(each.op.microbatch == microbatch);
            CHECK(each.said == outcomes[0].said);
            CHECK(each.nested_is_the_original);
            CHECK(each.after_us < 1e6);
            CHECK(each.next_step_is_right);
          }
          CHECK(contains(outcomes[0].said, "rank " + std::to_string(failing_rank) + ": F."));
          CHECK(contains(outcomes[0].said,
                         "microbatch " + std::to_string(microbatch) + " failed: made to fail"));
        }
}

TEST_CASE("a rank whose host throws ends the run of all with its name; the group can be used again",
          "[group][failure]") {
  host::group group(3);
  auto const begin = host::now_us();
  try {
    group.run([&](int rank) {
      host::lanes lanes({.rank = rank, .board = &group.board()});
      step work{group, rank};
      if (rank == 2) throw std::length_error("no such file");
      work.issue(lanes);
      lanes.drain();
    });
    FAIL("nothing was thrown");
  } catch (step_error const& error) {
    CHECK(std::string(error.what()) == "rank 2 failed: no such file");
    CHECK_THROWS_AS(std::rethrow_if_nested(error), std::length_error);
  }
  CHECK(host::now_us() - begin < 1e6);
  per_rank<int> right(3);
  group.run([&](int rank) {
    host::lanes lanes({.rank = rank, .board = &group.board()});
    step work{group, rank};
    work.issue(lanes);
    lanes.drain();
    right[at(rank)] = work.sum == work.right_sum();
  });
  CHECK(right == per_rank<int>{1, 1, 1});
}

TEST_CASE("an error that no rank handles leaves run as the error of its origin", "[group][failure]") {
  host::group group(3);
  try {
    group.run([&](int rank) {
      host::lanes lanes({.rank = rank, .board = &group.board()});
      step work{group, rank, 1, lane::comm, 2};
      work.issue(lanes);
      lanes.drain();
    });
    FAIL("nothing was thrown");
  } catch (step_error const& error) {
    CHECK(std::string(error.what()) == "rank 1: F.dispatch of layer 1, microbatch 2 failed: made to fail");
    CHECK(error.rank == 1);
  }
}

TEST_CASE("a rank missing from an exchange on the lanes is named in every rank's error",
          "[group][failure][building-blocks-11]") {
  host::group group(3, {.deadline = std::chrono::milliseconds(300)});
  per_rank<std::string> said(3);
  per_rank<int> came(3);
  group.run([&](int rank) {
    host::lanes lanes({.rank = rank, .board = &group.board()});
    step work{group, rank};
    if (rank != 1) work.issue(lanes);
    while (rank == 1 && !group.failed()) sleep_ms(1);
    try {
      lanes.drain();
    } catch (step_error const& error) {
      said[at(rank)] = error.what();
    }
    group.reset();
    work.comm.barrier();
    came[at(rank)] = 1;
  });
  CHECK(came == per_rank<int>{1, 1, 1});
  CHECK(contains(said[0], "F.dispatch of layer 1, microbatch 0 failed: rank 1 did not come to all_to_all"));
  CHECK(said[0] == said[1]);
  CHECK(said[0] == said[2]);
}

TEST_CASE("reset gives up on a rank that has ended, and on one that does not come", "[group][failure]") {
  {
    host::group group(2);
    std::string said;
    auto const begin = host::now_us();
    CHECK_THROWS_AS(group.run([&](int rank) {
      if (rank == 1) throw std::runtime_error("gone");
      try {
        group.reset();
      } catch (host::communicator_error const& error) {
        said = error.what();
      }
    }),
                    step_error);
    CHECK(said == "reset given up: rank 1 has ended by an exception");
    CHECK(host::now_us() - begin < 1e6);
  }
  {
    host::group group(2, {.deadline = std::chrono::milliseconds(50)});
    std::string said;
    group.run([&](int rank) {
      if (rank == 1) return;
      try {
        group.reset();
      } catch (host::communicator_error const& error) {
        said = error.what();
      }
    });
    CHECK(said == "reset given up: only 1 of 2 ranks came in time");
  }
}
