#include "device_memory.hpp"

#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/host.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <random>

using namespace stretto;
using test::device_bytes;
using bytes = std::vector<unsigned char>;
using exchange = cuda::staged_exchange<host::communicator>;
using rank_lanes = cuda::lanes<cuda::thread_stream, host::failure_board>;
static_assert(row_exchange<exchange>);

namespace {

constexpr op_label dispatch_op{dispatch, pass::forward, lane::comm, 0, 0};

/// Rows that rank `from` sends to rank `to` in a round.
using rows_of = int (*)(int from, int to, int round);

int random_rows(int from, int to, int round) {
  std::mt19937 random(static_cast<unsigned>(from * 100 + to * 10 + round * 1000));
  return random() % 3 == 0 ? 0 : static_cast<int>(random() % 500);
}
int no_rows(int, int, int) { return 0; }
int rows_to_the_first(int from, int to, int) { return to == 0 ? 10 + from : 0; }
int rows_to_oneself(int from, int to, int) { return from == to ? 300 : 0; }
int many_rows(int from, int to, int round) { return 20000 + 1000 * from + 100 * to + round; }

bytes block_of(int from, int to, int round, int rows, std::size_t row_bytes) {
  bytes block(static_cast<std::size_t>(rows) * row_bytes);
  auto state = static_cast<unsigned>(1 + from + 10 * to + 100 * round);
  for (auto& each : block) {
    state = state * 1664525u + 1013904223u;
    each = static_cast<unsigned char>(state >> 24);
  }
  return block;
}

struct round_data {
  std::vector<int> send_rows, receive_rows;
  device_bytes send, receive;
  bytes expected;
};

round_data make_round(int rank, int ranks, int round, rows_of rows, std::size_t row_bytes) {
  std::vector<int> send_rows, receive_rows;
  bytes send, expected;
  for (int other = 0; other < ranks; ++other) {
    send_rows.push_back(rows(rank, other, round));
    receive_rows.push_back(rows(other, rank, round));
    auto const out = block_of(rank, other, round, send_rows.back(), row_bytes);
    auto const in = block_of(other, rank, round, receive_rows.back(), row_bytes);
    send.insert(send.end(), out.begin(), out.end());
    expected.insert(expected.end(), in.begin(), in.end());
  }
  return {send_rows, receive_rows, device_bytes(send), device_bytes(bytes(expected.size(), 0xcd)), expected};
}

} // namespace

TEST_CASE("rows reach the ranks they are for, call after call", "[gpu]") {
  int const ranks = GENERATE(1, 2, 3, 5);
  rows_of const rows = GENERATE(random_rows, no_rows, rows_to_the_first, rows_to_oneself, many_rows);
  auto const row_bytes = static_cast<std::size_t>(rows == many_rows ? 1030 : GENERATE(2, 1030));
  if (rows == many_rows && ranks > 3) return;
  CAPTURE(ranks, row_bytes);
  constexpr int rounds = 6;
  std::vector<int> wrong(static_cast<std::size_t>(ranks));
  host::group group(ranks);
  group.run([&](int rank) {
    std::vector<round_data> data;
    for (int round = 0; round < rounds; ++round) data.push_back(make_round(rank, ranks, round, rows, row_bytes));
    rank_lanes lanes({.rank = rank}, {}, &group.board());
    exchange rows_between(group.communicator(rank));
    rank_lanes::event fetched;
    for (auto& each : data) {
      lanes.run(lane::comm, dispatch_op, [&] {
        rows_between.all_to_all(each.send.data(), each.send_rows.data(), each.receive.data(), each.receive_rows.data(), row_bytes);
      });
      // What is sent may be written over behind the call.
      lanes.run(lane::comm, dispatch_op, [&] {
        if (each.send.size() > 0) cudaMemsetAsync(each.send.data(), 0xee, each.send.size(), lanes.stream(lane::comm));
      });
      lanes.record(lane::comm, fetched);
    }
    lanes.drain();
    for (auto const& each : data) wrong[static_cast<std::size_t>(rank)] += each.receive.to_host() != each.expected;
  });
  for (int const each : wrong) CHECK(each == 0);
}

TEST_CASE("ranks that disagree about rows are told, all of them", "[gpu]") {
  host::group group(2);
  std::vector<std::string> told(2);
  CHECK_THROWS(group.run([&](int rank) {
    rank_lanes lanes({.rank = rank}, {}, &group.board());
    exchange rows_between(group.communicator(rank));
    device_bytes const memory(64);
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
    CHECK_THAT(each, Catch::Matchers::ContainsSubstring("rank 0 sends 16 bytes to rank 1, which expects 3 rows of 8"));
}

TEST_CASE("a step that fails on one rank ends on all, and the next one runs", "[gpu]") {
  host::group group(2);
  std::vector<int> failed(2), wrong(2, 1);
  group.run([&](int rank) {
    rank_lanes lanes({.rank = rank}, {}, &group.board());
    exchange rows_between(group.communicator(rank));
    auto const step = [&](bool fails, int round) {
      auto data = make_round(rank, 2, round, many_rows, 256);
      lanes.run(lane::compute, {mlp, pass::forward, lane::compute, 0, 0}, [&] {
        if (fails && rank == 1) throw std::runtime_error("lost its way");
      });
      for (int i = 0; i < 3; ++i)
        lanes.run(lane::comm, dispatch_op, [&] {
          rows_between.all_to_all(data.send.data(), data.send_rows.data(), data.receive.data(), data.receive_rows.data(), 256);
        });
      lanes.drain();
      return data.receive.to_host() != data.expected;
    };
    auto const here = static_cast<std::size_t>(rank);
    wrong[here] = step(false, 0);
    try {
      step(true, 1);
    } catch (host::step_error const& problem) {
      failed[here] = problem.rank == 1 && problem.op.phase == mlp;
    }
    group.reset();
    wrong[here] += step(false, 2);
  });
  CHECK(failed == std::vector<int>{1, 1});
  CHECK(wrong == std::vector<int>{0, 0});
}
