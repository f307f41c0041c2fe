#pragma once

#include "device_memory.hpp"
#include "laws/row_exchange.hpp"
#include "under_a_tool.hpp"

#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/host.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

/// Exchanges of device rows between threads against what the host knows must arrive.
namespace test {

using namespace stretto;
using bytes = std::vector<unsigned char>;
using rank_lanes = cuda::lanes<cuda::thread_stream, host::failure_board>;

constexpr op_label dispatch_op{dispatch, pass::forward, lane::comm, 0, 0};

inline int gpus_here() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}
/// Says that the rest of a test needs more GPUs than there are.
inline void need_gpus(int count) {
  if (gpus_here() < count) SKIP("needs " << count << " GPUs");
}
/// Under a tool all but `enough` ranks on as many GPUs as there are.
inline bool is_left_out(int ranks, int enough, int gpus) {
  return under_a_tool() && (ranks != enough || gpus != (std::min)(gpus_here(), 2));
}
/// Ranks take turns.
inline void use_gpu_of(int rank, int gpus) { cuda::check(cudaSetDevice(rank % gpus), "cudaSetDevice"); }

/// One graph of the steps of all ranks. Their exchanges hand on the turn at its capture.
using graph_of_all = cuda::step_graph<cuda::thread_stream, cuda::no_graph_memory, host::communicator>;

template <class Exchange>
Exchange make_exchange(host::group& group, int rank,
                       std::chrono::milliseconds deadline = patiently(std::chrono::milliseconds(10000)),
                       std::function<void(bool)> waits = {}) {
  auto const failed = [&board = group.board()] { return board.failed(); };
  return Exchange(group.communicator(rank), cuda::thread_stream{},
                  cuda::exchange_options{deadline, failed, std::move(waits)});
}

/// What a rank is told that sends itself other rows than it makes room for.
template <class Exchange> std::string said_of_own_rows() {
  host::group group(1);
  std::string said;
  group.run([&](int rank) {
    auto exchange = make_exchange<Exchange>(group, rank);
    int const out = 2, in = 3;
    try {
      exchange.all_to_all(nullptr, &out, nullptr, &in, 8);
    } catch (std::invalid_argument const& problem) {
      said = problem.what();
    }
  });
  return said;
}

/// Rows that rank `from` sends to rank `to` in a round.
using rows_of = int (*)(int from, int to, int round);

inline int random_rows(int from, int to, int round) {
  std::mt19937 random(static_cast<unsigned>(from * 100 + to * 10 + round * 1000));
  return random() % 3 == 0 ? 0 : static_cast<int>(random() % 500);
}
inline int no_rows(int, int, int) { return 0; }
inline int rows_to_the_first(int from, int to, int) { return to == 0 ? 10 + from : 0; }
inline int rows_to_oneself(int from, int to, int) { return from == to ? 300 : 0; }
inline int many_rows(int from, int to, int round) { return 20000 + 1000 * from + 100 * to + round; }

inline bytes block_of(int from, int to, int round, int rows, std::size_t row_bytes) {
  bytes block(static_cast<std::size_t>(rows) * row_bytes);
  auto state = static_cast<std::uint64_t>(1 + from + 10 * to + 100 * round);
  for (std::size_t i = 0; i < block.size(); i += sizeof(state)) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::uint64_t const mixed = state ^ (state >> 32);
    std::memcpy(block.data() + i, &mixed, (std::min)(sizeof(mixed), block.size() - i));
  }
  return block;
}

/// What a rank sends in a round and must receive, with rows as in round `shape`.
struct round_bytes {
  std::vector<int> send_rows, receive_rows;
  bytes send, expected;

  round_bytes(int rank, int ranks, int round, int shape, rows_of rows, std::size_t row_bytes) {
    for (int other = 0; other < ranks; ++other) {
      send_rows.push_back(rows(rank, other, shape));
      receive_rows.push_back(rows(other, rank, shape));
      auto const out = block_of(rank, other, round, send_rows.back(), row_bytes);
      auto const in = block_of(other, rank, round, receive_rows.back(), row_bytes);
      send.insert(send.end(), out.begin(), out.end());
      expected.insert(expected.end(), in.begin(), in.end());
    }
  }
};

struct round_data {
  std::vector<int> send_rows, receive_rows;
  device_bytes send, receive;
  bytes expected;

  explicit round_data(round_bytes const& of)
      : send_rows(of.send_rows), receive_rows(of.receive_rows), send(of.send),
        receive(bytes(of.expected.size(), 0xcd)), expected(of.expected) {}

  template <class Exchange> void issue(Exchange& exchange, std::size_t row_bytes, cudaStream_t here) const {
    exchange.all_to_all(send.data(), send_rows.data(), receive.data(), receive_rows.data(), row_bytes);
    // What is sent may be written over behind the call.
    if (send.size() > 0)
      cuda::check(cudaMemsetAsync(send.data(), 0xee, send.size(), here), "cudaMemsetAsync");
  }
  /// Other bytes for the same rows; afterwards they are there.
  void refill(round_bytes const& with) {
    auto const put = [](device_bytes const& to, bytes const& from) {
      if (!from.empty())
        cuda::check(cudaMemcpy(to.data(), from.data(), from.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    };
    put(send, with.send);
    put(receive, bytes(receive.size(), 0xcd));
    expected = with.expected;
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  bool is_wrong() const { return receive.to_host() != expected; }
};

/// Whether the rows that rank `rank` keeps have come, whatever else is under way.
inline bool is_there(round_data const& data, int rank, std::size_t row_bytes) {
  auto const me = static_cast<std::size_t>(rank);
  std::size_t begin = 0;
  for (std::size_t from = 0; from < me; ++from)
    begin += static_cast<std::size_t>(data.receive_rows[from]) * row_bytes;
  auto const size = static_cast<std::size_t>(data.receive_rows[me]) * row_bytes;
  cuda::stream beside;
  auto const is_right = [&](std::size_t first) {
    bytes found(size - first);
    cuda::check(cudaMemcpyAsync(found.data(), data.receive.data() + begin + first, found.size(),
                                cudaMemcpyDeviceToHost, beside.get()),
                "cudaMemcpyAsync");
    cuda::check(cudaStreamSynchronize(beside.get()), "cudaStreamSynchronize");
    return std::equal(found.begin(), found.end(),
                      data.expected.begin() + static_cast<std::ptrdiff_t>(begin + first));
  };
  // The end first: it comes last.
  return is_right(size - row_bytes) && is_right(0);
}
/// The same before long.
inline bool has_come(round_data const& data, int rank, std::size_t row_bytes) {
  for (int look = 0; look < 500; ++look) {
    if (is_there(data, rank, row_bytes)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

/// Memory that a stream is busy to fill. Under a tool what takes its time is the launch.
inline std::size_t delay_bytes() { return std::size_t{256} << times(20, 12); }

/// Keeps a stream busy for a random time, now and then.
class random_delay {
public:
  /// Warm, since the first use of what the GPU runs may wait for all that runs there.
  explicit random_delay(int seed) : random_(static_cast<unsigned>(seed)) {
    cuda::check(cudaMemset(scratch_.data(), 1, scratch_.size()), "cudaMemset");
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  void operator()(cudaStream_t on) {
    for (unsigned i = random_() % 8; i < 3; ++i)
      cuda::check(cudaMemsetAsync(scratch_.data(), 1, scratch_.size(), on), "cudaMemsetAsync");
  }

private:
  std::mt19937 random_;
  device_bytes scratch_{delay_bytes()};
};

struct exchange_case {
  int ranks = 2;
  int gpus = 1;
  rows_of rows = random_rows;
  std::size_t row_bytes = 64;
  int rounds = 6;
  bool delays = false;
};

/// How many of all rounds of all ranks brought wrong bytes; all rounds are issued before any is waited for.
template <class Exchange> int wrong_rounds(exchange_case const& of) {
  std::vector<int> wrong(static_cast<std::size_t>(of.ranks));
  host::group group(of.ranks);
  group.run([&](int rank) {
    use_gpu_of(rank, of.gpus);
    std::vector<round_data> data;
    for (int round = 0; round < of.rounds; ++round)
      data.emplace_back(round_bytes(rank, of.ranks, round, round, of.rows, of.row_bytes));
    std::optional<random_delay> delay;
    if (of.delays) delay.emplace(rank);
    rank_lanes lanes({.rank = rank}, {}, &group.board());
    auto exchange = make_exchange<Exchange>(group, rank);
    for (auto const& each : data)
      lanes.run(lane::comm, dispatch_op, [&] {
        if (delay) (*delay)(lanes.stream(lane::comm));
        each.issue(exchange, of.row_bytes, lanes.stream(lane::comm));
      });
    lanes.drain();
    for (auto const& each : data) wrong[static_cast<std::size_t>(rank)] += each.is_wrong();
  });
  int sum = 0;
  for (int const each : wrong) sum += each;
  return sum;
}

/// How many calls of all ranks brought wrong parts, there and back.
template <class Exchange> int wrong_parts(exchange_case const& of, int parts) {
  std::vector<int> wrong(static_cast<std::size_t>(of.ranks));
  host::group group(of.ranks);
  group.run([&](int rank) {
    use_gpu_of(rank, of.gpus);
    auto const part_of = [&](int from, int to, int part, int round) {
      return block_of(from, to * parts + part, round, of.rows(from, to + 7 * part, round), of.row_bytes);
    };
    struct call {
      std::vector<int> out_rows, in_rows;
      bytes out, in;
      device_bytes sent, sorted, back;
    };
    std::vector<call> calls;
    for (int round = 0; round < of.rounds; ++round) {
      std::vector<int> out_rows, in_rows;
      bytes out, in;
      auto const put = [](bytes& all, bytes const& block) {
        all.insert(all.end(), block.begin(), block.end());
      };
      for (int other = 0; other < of.ranks; ++other)
        for (int part = 0; part < parts; ++part) {
          out_rows.push_back(of.rows(rank, other + 7 * part, round));
          in_rows.push_back(of.rows(other, rank + 7 * part, round));
          put(out, part_of(rank, other, part, round));
        }
      for (int part = 0; part < parts; ++part)
        for (int other = 0; other < of.ranks; ++other) put(in, part_of(other, rank, part, round));
      calls.push_back(call{out_rows, in_rows, out, in, device_bytes(out),
                           device_bytes(bytes(in.size(), 0xcd)), device_bytes(bytes(out.size(), 0xcd))});
    }
    rank_lanes lanes({.rank = rank}, {}, &group.board());
    auto exchange = make_exchange<Exchange>(group, rank);
    for (auto const& each : calls)
      lanes.run(lane::comm, dispatch_op, [&] {
        exchange.all_to_all_parts(each.sent.data(), each.out_rows.data(), each.sorted.data(),
                                  each.in_rows.data(), of.row_bytes, parts, true);
        exchange.all_to_all_parts(each.sorted.data(), each.in_rows.data(), each.back.data(),
                                  each.out_rows.data(), of.row_bytes, parts, false);
      });
    lanes.drain();
    for (auto const& each : calls)
      wrong[static_cast<std::size_t>(rank)] +=
          each.sorted.to_host() != each.in || each.back.to_host() != each.out;
  });
  int sum = 0;
  for (int const each : wrong) sum += each;
  return sum;
}

/// The same for replays of captured calls with new bytes, and eager calls between them.
template <class Exchange> int wrong_replays(exchange_case const& of, int replays) {
  std::vector<int> wrong(static_cast<std::size_t>(of.ranks));
  host::group group(of.ranks);
  group.run([&](int rank) {
    use_gpu_of(rank, of.gpus);
    std::optional<random_delay> delay;
    if (of.delays) delay.emplace(rank);
    rank_lanes lanes({.rank = rank}, {}, &group.board());
    cudaStream_t const here = lanes.stream(lane::comm);
    auto exchange =
        make_exchange<Exchange>(group, rank, patiently(std::chrono::milliseconds(10000)), cuda::hand_on_turn);
    auto const bytes_of = [&](int round, int shape) {
      return round_bytes(rank, of.ranks, round, shape, of.rows, of.row_bytes);
    };
    std::vector<round_data> calls;
    for (int call = 0; call < of.rounds; ++call) calls.emplace_back(bytes_of(call, call));
    // Once before: with some eager calls, whose events mean nothing to the capture.
    round_data const first(bytes_of(0, 0));
    lanes.run(lane::comm, dispatch_op, [&] { first.issue(exchange, of.row_bytes, here); });
    lanes.drain();
    graph_of_all graph({}, {}, group.communicator(rank));
    auto const step = [&] {
      cudaStream_t const captured = cuda::thread_stream{}.current();
      for (auto const& each : calls) {
        if (delay) (*delay)(captured);
        each.issue(exchange, of.row_bytes, captured);
      }
    };
    graph.warm(step);
    graph.capture(step);
    int found = first.is_wrong();
    for (int replay = 0; replay < replays; ++replay) {
      for (int call = 0; call < of.rounds; ++call)
        calls[static_cast<std::size_t>(call)].refill(bytes_of(1000 * replay + call, call));
      graph.replay();
      graph.wait();
      for (auto const& each : calls) found += each.is_wrong();
      if (replay % 3 != 1) continue;
      round_data const eager(bytes_of(replay, replay));
      lanes.run(lane::comm, dispatch_op, [&] { eager.issue(exchange, of.row_bytes, here); });
      lanes.drain();
      found += eager.is_wrong();
    }
    wrong[static_cast<std::size_t>(rank)] = found;
  });
  int sum = 0;
  for (int const each : wrong) sum += each;
  return sum;
}

/// An exchange of device rows where the laws look at it: rows come from and go to the host.
template <class Exchange> class seen_from_host {
public:
  explicit seen_from_host(Exchange& of) : of_(of) {}
  int rank() const { return of_.rank(); }
  int ranks() const { return of_.ranks(); }
  void exchange_counts(int const* send_rows, int* counts) { of_.exchange_counts(send_rows, counts); }
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    auto const size = [&](int const* rows) {
      std::size_t sum = 0;
      for (int rank = 0; rank < ranks(); ++rank) sum += static_cast<std::size_t>(rows[rank]) * row_bytes;
      return sum;
    };
    auto const* const out = static_cast<unsigned char const*>(send);
    auto* const in = static_cast<unsigned char*>(receive);
    device_bytes const from(bytes(out, out + size(send_rows))), to(bytes(in, in + size(receive_rows)));
    of_.all_to_all(from.data(), send_rows, to.data(), receive_rows, row_bytes);
    cuda::check(cudaStreamSynchronize(cuda::thread_stream{}.current()), "cudaStreamSynchronize");
    auto const received = to.to_host();
    std::copy(received.begin(), received.end(), in);
  }

private:
  Exchange& of_;
};

/// Whether every rank saw the laws of row exchanges kept.
template <class Exchange> bool keeps_the_laws(int ranks, int gpus) {
  std::vector<int> kept(static_cast<std::size_t>(ranks));
  host::group group(ranks);
  group.run([&](int rank) {
    use_gpu_of(rank, gpus);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    auto exchange = make_exchange<Exchange>(group, rank);
    seen_from_host<Exchange> seen(exchange);
    bool const all = laws::counts_are_transposed(seen) & laws::rows_arrive_in_rank_order(seen) &
                     laws::calls_are_apart(seen);
    kept[static_cast<std::size_t>(rank)] = all;
  });
  return std::count(kept.begin(), kept.end(), 1) == ranks;
}

/// 200 calls ahead, under random delays, and the laws of row exchanges; with one GPU and with two.
template <class Exchange> void check_delays() {
  int const ranks = GENERATE(2, 4), gpus = GENERATE(1, 2);
  if (is_left_out(ranks, 4, gpus)) return;
  need_gpus(gpus);
  CHECK(wrong_rounds<Exchange>({.ranks = ranks, .gpus = gpus, .rounds = times(200, 20), .delays = true}) ==
        0);
  CHECK(keeps_the_laws<Exchange>(ranks, gpus));
}

template <class Exchange> void check_replays() {
  int const ranks = GENERATE(1, 2, 4), gpus = GENERATE(1, 2);
  rows_of const rows = GENERATE(random_rows, no_rows, rows_to_the_first, many_rows);
  if (is_left_out(ranks, 2, gpus)) return;
  need_gpus(gpus);
  if (rows == many_rows && ranks == 4) return;
  CAPTURE(ranks, gpus);
  auto const row_bytes = static_cast<std::size_t>(rows == many_rows ? 300 : 64);
  CHECK(wrong_replays<Exchange>({ranks, gpus, rows, row_bytes, rows == many_rows ? 3 : 5, true},
                                times(rows == many_rows ? 3 : 20, 2)) == 0);
}

/// Whether a step that fails on one rank ends on both, and the next one brings the right bytes.
template <class Exchange> bool ends_together_and_goes_on() {
  host::group group(2);
  std::vector<int> right(2);
  group.run([&](int rank) {
    rank_lanes lanes({.rank = rank}, {}, &group.board());
    auto exchange = make_exchange<Exchange>(group, rank);
    int ended = 0;
    for (int step = 0; step < 6; ++step) {
      std::vector<round_data> calls;
      for (int i = 0; i < 3; ++i) calls.emplace_back(round_bytes(rank, 2, step, step, many_rows, 64));
      int const fails_before = step % 2 == 1 ? step / 2 : 3;
      for (int i = 0; i < 3; ++i) {
        if (rank == 1 && i == fails_before)
          lanes.run(lane::compute, {mlp, pass::forward, lane::compute, 0, 0},
                    [] { throw std::runtime_error("lost its way"); });
        lanes.run(lane::comm, dispatch_op,
                  [&] { calls[static_cast<std::size_t>(i)].issue(exchange, 64, lanes.stream(lane::comm)); });
      }
      try {
        lanes.drain();
        for (auto const& each : calls) ended += fails_before == 3 && !each.is_wrong();
      } catch (step_error const& problem) {
        ended += 3 * (fails_before < 3 && problem.rank == 1 && problem.op.phase == mlp);
      }
      if (fails_before < 3) group.reset();
    }
    right[static_cast<std::size_t>(rank)] = ended;
  });
  return right == std::vector<int>{18, 18};
}

} // namespace test
