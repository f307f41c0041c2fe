#include "unit/agreement.hpp"

#include <stretto/adapters/host.hpp>

#include <cstdlib>
#include <new>

using namespace stretto;
using toy::Model;

namespace {
std::atomic<long> allocations{0};
}

// Not inlined: g++ would warn that what malloc made is given to an operator.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* const p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace {

template <class S, class Lanes = counting_lanes>
long allocations_of_steps(std::string const& picture, int microbatches) {
  toy::network<Model> net(picture, microbatches);
  toy::tensors<toy::number> numbers;
  Lanes lanes;
  executor run(S{}, backend{numbers, lanes}, net.layers, sizes{.microbatches = microbatches});
  long const before = allocations;
  run();
  run();
  return allocations - before;
}

} // namespace

TEST_CASE("a step allocates nothing, not even the first", "[executor]") {
  long const before = allocations;
  // Called by name, since a new expression and its delete may be left out together.
  ::operator delete(::operator new(sizeof(int)));
  long const one = allocations - before;
  REQUIRE(one == 1);
  CHECK(allocations_of_steps<Schedule<Model, Serial>>("EMDMH", 5) == 0);
  CHECK(allocations_of_steps<Schedule<Model, TwoStream1F1B, SplitDW>>("EMDMH", 5) == 0);
  CHECK(allocations_of_steps<Schedule<Model, TwoStream1F1B, SplitDW, toy::CrossedChunks>>("EM|DMH", 5) == 0);
  CHECK(allocations_of_steps<Schedule<Model, TwoStream1F1B, SplitDW, toy::CrossedChunks>>("|EMDMH", 5) == 0);
  CHECK(allocations_of_steps<Schedule<Model, TwoStream1F1B, SplitDW>, host::lanes>("EMDMH", 5) == 0);
}
