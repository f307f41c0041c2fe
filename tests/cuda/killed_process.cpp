#include "gpu/exchange_processes.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace test;

TEST_CASE("a process that is killed in a call ends the calls and the streams of the others", "[gpu]") {
  int const ranks = GENERATE(2, 4), gpus = GENERATE(1, 2);
  if (gpus > gpus_of_machine()) return;
  CAPTURE(ranks, gpus);
  auto const survives = [&](shared_exchange& of_rank) {
    int const me = of_rank.rank();
    use_gpu_of(me, gpus);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(me, ranks, 0, 0, many_rows, 64));
    auto exchange = make_process_exchange(of_rank, std::chrono::milliseconds(1000));
    for (int i = 0; i < 3; ++i) data.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    of_rank.barrier();
    cuda::host_flags never(1);
    if (me == 1) {
      // It comes to the call, and what it sends does not.
      cuda::flag_ops().wait_for(never[0], 1).issue(own.get());
      data.issue(exchange, 64, own.get());
      ::raise(SIGKILL);
    }
    std::string told;
    try {
      for (int i = 0; i < 3; ++i) data.issue(exchange, 64, own.get());
    } catch (std::exception const& problem) {
      told = problem.what();
    }
    // What is not let go hangs here.
    static_cast<void>(cudaStreamSynchronize(own.get()));
    bool const is_told = told == "call 5 of a process_exchange: rank 1 did not come within 1000 ms" ||
                         told.ends_with("of a process_exchange given up: a rank has failed");
    if (!is_told) std::fprintf(stderr, "rank %d: '%s'\n", me, told.c_str());
    return is_told;
  };
  CHECK(count_true(ranks, survives) == ranks - 1);
}

TEST_CASE("a process that is killed in the last call of a step ends the streams of the others", "[gpu]") {
  auto const survives = [](shared_exchange& of_rank) {
    use_gpu_of(of_rank.rank(), 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(of_rank.rank(), 2, 0, 0, many_rows, 64));
    auto exchange = make_process_exchange(of_rank, std::chrono::milliseconds(2000));
    data.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    of_rank.barrier();
    cuda::host_flags never(1);
    if (of_rank.rank() == 1) cuda::flag_ops().wait_for(never[0], 1).issue(own.get());
    data.issue(exchange, 64, own.get());
    if (of_rank.rank() == 1) ::raise(SIGKILL);
    // What is not let go hangs here.
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    std::string told;
    try {
      data.issue(exchange, 64, own.get());
    } catch (std::exception const& problem) {
      told = problem.what();
    }
    return told == "call 3 of a process_exchange given up: a rank has failed";
  };
  CHECK(count_true(2, survives) == 1);
}
