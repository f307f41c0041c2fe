#include "../../bench/run/steps.hpp"
#include "issued_calls.hpp"

#include <stretto/adapters/cuda/lanes.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace stretto;

namespace {

constexpr int microbatches = 4;

issued_calls calls_of_a_step(int layers) {
  steps::by_executor_over<cuda::lanes<>> step(layers, microbatches);
  step();
  auto const before = calls_of_this_thread();
  step();
  return calls_of_this_thread() - before;
}

} // namespace

TEST_CASE("an overlapped layer issues an event and a wait where its rows change lanes, and no more",
          "[cuda]") {
  auto const two = calls_of_a_step(2), three = calls_of_a_step(3);
  // Forward and backward: into dispatch, out of it, into combine, out of it.
  CHECK(three.records - two.records == 8 * microbatches);
  CHECK(three.waits - two.waits == 8 * microbatches);
}
