#include "device_memory.hpp"

#include <stretto/adapters/cuda/flag_room.hpp>
#include <stretto/adapters/cuda/handles.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <chrono>
#include <thread>

using namespace stretto;
using test::device_bytes;

namespace {

bool comes_true(auto const& condition) {
  for (int i = 0; i < 5000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}
bool is_idle(cuda::stream const& which) { return cudaStreamQuery(which.get()) == cudaSuccess; }

cudaGraphExec_t captured(cuda::stream& on, auto const& issue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  cuda::check(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  CHECK(cuda::is_capturing(on.get()));
  issue();
  cuda::check(cudaStreamEndCapture(on.get(), &graph), "cudaStreamEndCapture");
  cuda::check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  cuda::check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return replay;
}

} // namespace

TEST_CASE("a stream waits for a flag of the host or of another stream, issued before or after", "[gpu]") {
  cuda::host_flags flags(3);
  cuda::stream waits, writes;
  cuda::flag_ops ops;
  ops.take(flags[0]).write(flags[1], 7).issue(waits.get());
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(is_idle(waits));
  CHECK(flags.get(1) == 0);
  flags.set(0, 1);
  CHECK(comes_true([&] { return is_idle(waits); }));
  CHECK(flags.get(0) == 0);
  CHECK(flags.get(1) == 7);

  ops.take(flags[2]).issue(waits.get());
  ops.write(flags[2], 1).issue(writes.get());
  CHECK(comes_true([&] { return is_idle(waits); }));
  CHECK(flags.get(2) == 0);
}

TEST_CASE("more flags than one call of the driver takes keep their order", "[gpu]") {
  constexpr std::size_t count = 700;
  cuda::host_flags flags(count);
  cuda::stream one, other;
  cuda::flag_ops ops;
  for (std::size_t i = 0; i < count; ++i) ops.take(flags[i]);
  ops.issue(one.get());
  for (std::size_t i = 0; i < count; ++i) ops.write(flags[i], 1);
  ops.issue(other.get());
  CHECK(comes_true([&] { return is_idle(one); }));
  for (std::size_t i = 0; i < count; ++i) CHECK(flags.get(i) == 0);
}

TEST_CASE("what a stream did before it wrote is there for who waited, in graphs that two threads replay",
          "[gpu]") {
  constexpr int replays = 200;
  constexpr std::size_t size = 1 << 20;
  cuda::host_flags flags(4);
  device_bytes const from(size), middle(size), to(size);
  std::atomic<int> wrong = 0;
  auto const player = [&](bool first) {
    cuda::stream own;
    cuda::flag_ops ops;
    auto const replay = captured(own, [&] {
      if (first) {
        cuda::check(cudaMemcpyAsync(middle.data(), from.data(), size, cudaMemcpyDeviceToDevice, own.get()),
                    "cudaMemcpyAsync");
        ops.write(flags[0], 1).take(flags[1]).issue(own.get());
      } else {
        ops.take(flags[0]).issue(own.get());
        cuda::check(cudaMemcpyAsync(to.data(), middle.data(), size, cudaMemcpyDeviceToDevice, own.get()),
                    "cudaMemcpyAsync");
        ops.write(flags[1], 1).issue(own.get());
      }
    });
    for (int i = 0; i < replays; ++i) {
      auto const number = static_cast<unsigned char>(i % 250 + 1);
      if (first) cuda::check(cudaMemsetAsync(from.data(), number, size, own.get()), "cudaMemsetAsync");
      cuda::check(cudaGraphLaunch(replay, own.get()), "cudaGraphLaunch");
      if (first) continue;
      unsigned char last = 0;
      cuda::check(cudaMemcpyAsync(&last, to.data() + size - 1, 1, cudaMemcpyDeviceToHost, own.get()),
                  "cudaMemcpyAsync");
      cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
      wrong += last != number;
    }
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    cuda::check(cudaGraphExecDestroy(replay), "cudaGraphExecDestroy");
  };
  std::thread first(player, true), second(player, false);
  first.join();
  second.join();
  CHECK(wrong == 0);
}

TEST_CASE("a failed step lets go every stream that waits, however often, and flags are set back", "[gpu]") {
  cuda::detail::flag_room room(2, 3, /*free_kinds=*/1);
  std::atomic<bool> failed = false;
  room.watch([&] { return failed.load(); });
  cuda::stream waits;
  cuda::flag_ops ops;
  for (int i = 0; i < 300; ++i) ops.take(room.at(0, 1, 1)).take(room.at(1, 0, 2));
  ops.issue(waits.get());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(is_idle(waits));
  CHECK_FALSE(room.is_broken());
  failed = true;
  CHECK(comes_true([&] { return is_idle(waits); }));
  CHECK(room.is_broken());
  failed = false;
  room.set_broken(false);
  for (std::size_t owner : {0u, 1u}) room.set_back(owner);
  ops.take(room.at(0, 1, 0)).issue(waits.get());
  CHECK(comes_true([&] { return is_idle(waits); }));
  ops.take(room.at(0, 1, 1)).issue(waits.get());
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK_FALSE(is_idle(waits));
  ops.write(room.at(0, 1, 1), 1);
  cuda::stream writes;
  ops.issue(writes.get());
  CHECK(comes_true([&] { return is_idle(waits); }));
}
