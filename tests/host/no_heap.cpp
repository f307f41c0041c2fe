#include "support.hpp"

#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <new>
#include <vector>

namespace {
std::atomic<long> allocations = 0;
}

// clang's thread sanitizer brings an operator new that cannot be replaced: there the tests only look for races.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STRETTO_TEST_CANNOT_COUNT
#endif
#endif

#ifdef STRETTO_TEST_CANNOT_COUNT
constexpr bool is_counting = false;
#else
constexpr bool is_counting = true;

void* operator new(std::size_t bytes) {
  ++allocations;
  if (void* const memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
// Not inlined: g++ 12 then takes the pair of operator new and free for a mistake.
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif

using namespace test;

TEST_CASE("lanes do not allocate after construction, timeline and delays included", "[heap]") {
  host::lanes lanes({.peers = true, .ring = 16, .spans = 500, .shake_seed = 3, .shake_us = 5});
  host::lanes::event marks[2];
  long sum = 0;
  long const before = allocations;
  for (int i = 0; i < 1000; ++i) {
    lanes.run(lane::compute, label(mlp), [&sum, i] { sum += i; });
    lanes.record(lane::compute, marks[i % 2]);
    lanes.wait(lane::comm, marks[i % 2]);
    lanes.run(lane::comm, label(combine, lane::comm), [&sum] { --sum; });
    lanes.record(lane::comm, marks[i % 2]);
    lanes.wait(lane::compute, marks[i % 2]);
    lanes.run(lane::receive_lower, label(attn, lane::receive_lower), [] {});
  }
  lanes.drain();
  CHECK(allocations == before);
  CHECK(sum == 1000L * 999 / 2 - 1000);
  CHECK(lanes.timeline().size() == 1500);
  CHECK((!is_counting || allocations > before)); // the count does count
}

TEST_CASE("collective calls do not allocate", "[heap]") {
  host::group group(3, {.link = {.microseconds = 20}});
  long before = 0, after = 1;
  group.run([&](int rank) {
    auto comm = group.communicator(rank);
    host::lanes lanes({.rank = rank, .board = &group.board()});
    std::vector<int> const rows{2, 2, 2};
    std::vector<int> counts(3), from(6), to(6);
    std::vector<float> values(100), all(300);
    comm.barrier();
    if (rank == 0) before = allocations;
    comm.barrier();
    auto const work = [&] {
      comm.exchange_counts(rows.data(), counts.data());
      comm.all_to_all(from.data(), rows.data(), to.data(), counts.data(), sizeof(int));
      comm.all_reduce(values.data(), values.size());
      comm.all_gather(values.data(), values.size(), all.data());
      comm.barrier();
    };
    for (int i = 0; i < 20; ++i) lanes.run(lane::comm, label(dispatch, lane::comm), [&work] { work(); });
    lanes.drain();
    comm.barrier();
    if (rank == 0) after = allocations;
    comm.barrier();
  });
  CHECK(after == before);
}
