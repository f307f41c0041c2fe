#include "exchange_processes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

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
    for (int round = 0; round < (rows == random_rows ? 50 : 4); ++round)
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

} // namespace

// Nothing here may touch CUDA before it forks.
TEST_CASE("rows are pushed between processes, under random delays", "[gpu]") {
  int const ranks = GENERATE(2, 4), gpus = GENERATE(1, 2);
  need_gpus_of_machine(gpus);
  CAPTURE(ranks, gpus);
  CHECK(count_true(ranks, [&](shared_exchange& of_rank) { return rounds_are_right(of_rank, gpus); }) ==
        ranks);
}

TEST_CASE("after a call that a rank gave up every further call is refused", "[gpu]") {
  auto const is_refused = [](shared_exchange& ranks) {
    use_gpu_of(ranks.rank(), 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(ranks.rank(), 2, 0, 0, many_rows, 64));
    auto exchange = make_process_exchange(ranks, std::chrono::milliseconds(20000));
    data.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    ranks.barrier();
    int const negative[] = {-1, -1};
    bool told = false;
    try {
      if (ranks.rank() == 0) exchange.all_to_all(nullptr, negative, nullptr, negative, 64);
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
