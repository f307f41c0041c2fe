#include <stretto/adapters/cuda/flags.hpp>
#include <stretto/adapters/cuda/handles.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <thread>

using namespace stretto;

namespace {

bool comes_true(auto const& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}
bool is_idle(cuda::stream const& which) { return cudaStreamQuery(which.get()) == cudaSuccess; }

} // namespace

TEST_CASE("a stream waits for a flag of the host or of another stream, issued before or after", "[gpu]") {
  cuda::host_flags flags(3);
  cuda::stream waits, writes;
  cuda::flag_ops ops;
  ops.wait_for(flags[0], 1).write(flags[0], 0).write(flags[1], 7).issue(waits.get());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(is_idle(waits));
  CHECK(flags.get(1) == 0);
  flags.set(0, 1);
  CHECK(comes_true([&] { return is_idle(waits); }));
  CHECK(flags.get(0) == 0);
  CHECK(flags.get(1) == 7);

  ops.wait_for_at_least(flags[2], 3).issue(waits.get());
  ops.write(flags[2], 2).issue(writes.get());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(is_idle(waits));
  ops.write(flags[2], 5).issue(writes.get());
  CHECK(comes_true([&] { return is_idle(waits); }));
}

TEST_CASE("more flags than one call of the driver takes keep their order", "[gpu]") {
  constexpr std::size_t count = 700;
  cuda::host_flags flags(count);
  cuda::stream one, other;
  cuda::flag_ops ops;
  for (std::size_t i = 0; i < count; ++i) ops.wait_for(flags[i], 1).write(flags[i], 0);
  ops.issue(one.get());
  for (std::size_t i = 0; i < count; ++i) ops.write(flags[i], 1);
  ops.issue(other.get());
  CHECK(comes_true([&] { return is_idle(one); }));
  for (std::size_t i = 0; i < count; ++i) CHECK(flags.get(i) == 0);
}
