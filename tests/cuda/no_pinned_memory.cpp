#include "gpu/exchanges.hpp"

#include <stretto/adapters/cuda/flags.hpp>
#include <stretto/adapters/cuda/staged_exchange.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstddef>
#include <cstdlib>
#include <stdexcept>
#include <string>

using namespace test;

TEST_CASE("behind a staged call that finds no host memory nothing of it is still to be copied", "[cuda]") {
  host::group group(2);
  std::string told;
  bool were_there = false;
  group.run([&](int rank) {
    use_gpu_of(rank, 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    auto exchange = make_exchange<cuda::staged_exchange<host::communicator>>(group, rank);
    if (rank == 1) return;
    // Enough to take a while.
    std::size_t const row_bytes = 2048;
    round_data const data(round_bytes(0, 2, 0, 0, many_rows, row_bytes));
    cuda::host_flags held(1);
    cuda::flag_ops().wait_for(held[0], 1).issue(own.get());
    ::setenv("STRETTO_NO_PINNED_MEMORY", "1", 1);
    try {
      data.issue(exchange, row_bytes, own.get());
    } catch (std::runtime_error const& problem) {
      told = problem.what();
    }
    ::unsetenv("STRETTO_NO_PINNED_MEMORY");
    held.set(0, 1);
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    were_there = is_there(data, 0, row_bytes);
  });
  CHECK_THAT(told, Catch::Matchers::ContainsSubstring("cudaHostAlloc"));
  CHECK(were_there);
}
