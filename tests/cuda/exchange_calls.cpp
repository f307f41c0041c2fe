#include "gpu/exchanges.hpp"
#include "issued_calls.hpp"

#include <stretto/adapters/cuda/peer_exchange.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace test;

// Where the host is the limit each of these costs a step about a microsecond.
TEST_CASE("a push issues a copy for every block, and events for ranks, not for blocks", "[cuda]") {
  int const ranks = GENERATE(1, 2, 3), parts = GENERATE(1, 4);
  CAPTURE(ranks, parts);
  std::vector<issued_calls> issued(static_cast<std::size_t>(ranks));
  host::group group(ranks);
  group.run([&](int rank) {
    use_gpu_of(rank, 2);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    auto exchange = make_exchange<cuda::peer_exchange<host::communicator>>(group, rank);
    std::vector<int> const rows(static_cast<std::size_t>(ranks * parts), 3);
    device_bytes const sent(rows.size() * 3), received(rows.size() * 3);
    auto const before = calls_of_this_thread();
    exchange.all_to_all_parts(sent.data(), rows.data(), received.data(), rows.data(), 1, parts, true);
    issued[static_cast<std::size_t>(rank)] = calls_of_this_thread() - before;
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    group.communicator(rank).barrier();
  });
  for (auto const& each : issued) {
    CHECK(each.copies == ranks * parts);
    // That there is room, that own rows are there, that all that goes to others is.
    CHECK(each.records == 3);
    // Of the copies of own rows and for them; of every other rank, that it has room and that its rows are there.
    CHECK(each.waits == 2 * ranks);
  }
}
