#include "exchange_processes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <chrono>
#include <string>
#include <thread>

using namespace test;

namespace {

bool rounds_are_right(shared_exchange& ranks, int gpus) {
  use_gpu_of(ranks.rank(), gpus);
  cuda::stream own;
  auto const current = cuda::thread_stream{}.enter(own.get());
  random_delay delay(ranks.rank());
  auto exchange = make_process_exchange(ranks, std::chrono::milliseconds(20000));
  bool right = true;
  for (rows_of const rows : {random_rows, no_rows, rows_to_the_first, many_rows}) {
    std::vector<round_data> data;
    for (int round = 0; round < (rows == random_rows ? times(50, 6) : 4); ++round)
      data.emplace_back(round_bytes(ranks.rank(), ranks.ranks(), round, round, rows, 64));
    for (auto const& each : data) {
      delay(own.get());
      each.issue(exchange, 64, own.get());
    }
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    for (auto const& each : data) right = right && !each.is_wrong();
    // Nobody gives memory back while others may still push.
    ranks.barrier();
  }
  seen_from_host<exchange_of_processes> seen(exchange);
  right = laws::counts_are_transposed(seen) && right;
  right = laws::rows_arrive_in_rank_order(seen) && right;
  ranks.barrier();
  return right;
}

/// Each rank with a graph and a GPU of its own, and calls by themselves between replays.
bool replays_are_right(shared_exchange& ranks, rows_of rows) {
  int const size = ranks.ranks(), rounds = rows == many_rows ? 3 : 5;
  auto const row_bytes = static_cast<std::size_t>(rows == many_rows ? 300 : 64);
  use_gpu_of(ranks.rank(), size);
  cuda::stream own;
  auto const current = cuda::thread_stream{}.enter(own.get());
  random_delay delay(ranks.rank());
  auto exchange = make_process_exchange(ranks, std::chrono::milliseconds(20000));
  auto const bytes_of = [&](int round, int shape) {
    return round_bytes(ranks.rank(), size, round, shape, rows, row_bytes);
  };
  std::vector<round_data> calls;
  for (int call = 0; call < rounds; ++call) calls.emplace_back(bytes_of(call, call));
  cuda::step_graph<> graph;
  auto const step = [&] {
    cudaStream_t const here = cuda::thread_stream{}.current();
    for (auto const& each : calls) {
      delay(here);
      each.issue(exchange, row_bytes, here);
    }
  };
  graph.warm(step);
  graph.capture(step);
  ranks.barrier();
  int wrong = 0;
  for (int replay = 0; replay < (rows == many_rows ? 3 : times(8, 3)); ++replay) {
    for (int call = 0; call < rounds; ++call)
      calls[static_cast<std::size_t>(call)].refill(bytes_of(1000 * replay + call, call));
    graph.replay();
    exchange.note_launch();
    graph.wait();
    for (auto const& each : calls) wrong += each.is_wrong();
    if (replay % 3 != 1) continue;
    round_data const eager(bytes_of(replay, replay));
    eager.issue(exchange, row_bytes, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    wrong += eager.is_wrong();
    ranks.barrier();
  }
  ranks.barrier();
  return wrong == 0;
}

/// What capturing a call throws.
template <class Before> std::string refusal(shared_exchange& ranks, int gpus, Before const& before) {
  use_gpu_of(ranks.rank(), gpus);
  cuda::stream own;
  auto const current = cuda::thread_stream{}.enter(own.get());
  round_data const data(round_bytes(ranks.rank(), 2, 0, 0, many_rows, 64));
  auto exchange = make_process_exchange(ranks, std::chrono::milliseconds(20000));
  auto const step = [&] { data.issue(exchange, 64, cuda::thread_stream{}.current()); };
  cuda::step_graph<> graph;
  graph.warm(step);
  std::string said;
  try {
    before(step);
    graph.capture(step);
  } catch (std::exception const& problem) {
    said = problem.what();
  }
  ranks.barrier();
  return said;
}

} // namespace

// Nothing here may touch CUDA before it forks.
TEST_CASE("rows are pushed between processes, under random delays", "[gpu]") {
  int const ranks = GENERATE(2, 4), gpus = GENERATE(1, 2);
  if (is_left_out_of_processes(gpus) || (under_a_tool() && ranks != 2)) return;
  need_gpus_of_machine(gpus);
  CAPTURE(ranks, gpus);
  CHECK(count_true(ranks, [&](shared_exchange& of_rank) { return rounds_are_right(of_rank, gpus); }) ==
        ranks);
}

TEST_CASE("after a call that a rank gave up every further call is refused", "[gpu]") {
  // A negative number of rows, or other rows to itself than it makes room for.
  int const to_itself = GENERATE(-1, 2), from_itself = to_itself == 2 ? 3 : -1;
  auto const is_refused = [&](shared_exchange& ranks) {
    use_gpu_of(ranks.rank(), 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(ranks.rank(), 2, 0, 0, many_rows, 64));
    auto exchange = make_process_exchange(ranks, std::chrono::milliseconds(20000));
    data.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    ranks.barrier();
    int const out[] = {to_itself, 0}, in[] = {from_itself, 0};
    bool told = false;
    try {
      if (ranks.rank() == 0) exchange.all_to_all(nullptr, out, nullptr, in, 64);
    } catch (std::invalid_argument const&) {
      told = true;
    }
    ranks.barrier();
    std::string said;
    try {
      data.issue(exchange, 64, own.get());
    } catch (std::runtime_error const& problem) {
      said = problem.what();
    }
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    ranks.barrier();
    return told == (ranks.rank() == 0) && said.ends_with("given up: a rank has failed");
  };
  CHECK(count_true(2, is_refused) == 2);
}

TEST_CASE("the rows that a process keeps do not wait for the other processes", "[gpu]") {
  auto const is_right = [](shared_exchange& ranks) {
    int const me = ranks.rank();
    use_gpu_of(me, 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(me, 2, 0, 0, many_rows, 64));
    auto exchange = make_process_exchange(ranks, std::chrono::milliseconds(20000));
    bool were_there = true;
    std::thread other;
    if (me == 0)
      other = std::thread([&] {
        were_there = has_come(data, 0, 64);
        ranks.barrier();
      });
    else
      ranks.barrier();
    data.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    if (other.joinable()) other.join();
    ranks.barrier();
    return were_there && !data.is_wrong();
  };
  CHECK(count_true(2, is_right) == 2);
}

TEST_CASE("a process that does not come to a call is named, and nothing of the call is still to be copied",
          "[gpu]") {
  if (under_initcheck())
    SKIP("under initcheck nothing is issued behind a stream that waits for the same thread");
  auto const is_told = [](shared_exchange& ranks) {
    int const me = ranks.rank();
    use_gpu_of(me, 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    // Enough to take a while.
    std::size_t const row_bytes = 2048;
    round_data const data(round_bytes(me, 2, 0, 0, many_rows, row_bytes));
    auto exchange = make_process_exchange(ranks, std::chrono::milliseconds(me == 0 ? 300 : 20000));
    std::string said;
    bool were_there = true;
    if (me == 0) {
      cuda::host_flags held(1);
      cuda::flag_ops().wait_for(held[0], 1).issue(own.get());
      try {
        data.issue(exchange, row_bytes, own.get());
      } catch (std::runtime_error const& problem) {
        said = problem.what();
      }
      held.set(0, 1);
      cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
      were_there = is_there(data, 0, row_bytes);
    }
    ranks.barrier();
    return were_there &&
           (me == 1 || said == "call 1 of a process_exchange: rank 1 did not come within 300 ms");
  };
  CHECK(count_true(2, is_told) == 2);
}

TEST_CASE("a call has until its deadline from when its stream comes to it", "[gpu]") {
  if (under_initcheck())
    SKIP("under initcheck nothing is issued behind a stream that waits for the same thread");
  auto const is_right = [](shared_exchange& ranks) {
    use_gpu_of(ranks.rank(), 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(ranks.rank(), 2, 0, 0, many_rows, 64));
    auto exchange = make_process_exchange(ranks, std::chrono::milliseconds(1500));
    cuda::host_flags held(1);
    cuda::flag_ops().wait_for(held[0], 1).issue(own.get());
    ranks.barrier();
    data.issue(exchange, 64, own.get());
    // What the stream has to do before lasts longer than the deadline.
    std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    held.set(0, 1);
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    ranks.barrier();
    bool const right = !data.is_wrong();
    data.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    ranks.barrier();
    return right;
  };
  CHECK(count_true(2, is_right) == 2);
}

TEST_CASE("replays of pushes between processes bring what calls by themselves bring", "[gpu]") {
  int const ranks = 2;
  need_gpus_of_machine(ranks);
  rows_of const rows = GENERATE(random_rows, no_rows, rows_to_the_first, many_rows);
  if (under_a_tool() && rows != random_rows && rows != many_rows) return;
  CAPTURE(rows);
  CHECK(count_true(ranks, [&](shared_exchange& of_rank) { return replays_are_right(of_rank, rows); }) ==
        ranks);
}

TEST_CASE("processes that share a GPU, and one that captures alone, are told", "[gpu]") {
  need_gpus_of_machine(2);
  CHECK(count_true(2, [](shared_exchange& ranks) {
          return refusal(ranks, 1, [](auto const&) {}).find("give each a GPU of its own") !=
                 std::string::npos;
        }) == 2);
  CHECK(count_true(2, [](shared_exchange& ranks) {
          auto const said = refusal(ranks, 2, [&](auto const& step) {
            if (ranks.rank() == 1) step();
          });
          return said.find("one captures its call and the other does not") != std::string::npos ||
                 said.find("given up: a rank has failed") != std::string::npos;
        }) == 2);
}
