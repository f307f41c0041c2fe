#include <stretto/adapters/cuda/flags.hpp>
#include <stretto/adapters/cuda/handles.hpp>
#include <stretto/adapters/nccl/gate.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <future>
#include <string>
#include <thread>

// What watches calls, over a runtime that needs no GPU.

using namespace stretto;
using Catch::Matchers::ContainsSubstring;
using std::chrono::milliseconds;

namespace {

/// Streams that do not move on before they are let go.
class held_streams {
public:
  explicit held_streams(std::size_t count) : flags_(count), streams_(count) {
    for (std::size_t i = 0; i < count; ++i) cuda::flag_ops().wait_for(flags_[i], 1).issue(on(i));
  }
  ~held_streams() {
    for (std::size_t i = 0; i < streams_.size(); ++i) let_go(i);
  }
  cudaStream_t on(std::size_t which) const { return streams_[which].get(); }
  void let_go(std::size_t which) const { flags_.set(which, 1); }
  void finish(std::size_t which) const {
    let_go(which);
    nccl::check(cudaStreamSynchronize(on(which)), "cudaStreamSynchronize");
  }

private:
  cuda::host_flags flags_;
  std::deque<cuda::stream> streams_;
};

constexpr milliseconds soon(1), never(3'600'000);

std::string late(nccl::in_flight& calls) {
  std::this_thread::sleep_for(milliseconds(5));
  auto const found = calls.overdue();
  return found ? found->what : "";
}

} // namespace

TEST_CASE("a call is late when its own time is over, whatever stands before it", "[nccl]") {
  for (bool const first_is_over : {false, true}) {
    held_streams const streams(2);
    nccl::in_flight calls(soon, never);
    calls.note("the first call", streams.on(0), calls.joining());
    if (first_is_over) streams.finish(0);
    calls.note("all_to_all", streams.on(1));
    CHECK(late(calls) == "all_to_all");
    streams.finish(1);
    CHECK(late(calls) == "");
  }
}

TEST_CASE("a call is late on a stream beside those that are done", "[nccl]") {
  held_streams const streams(3);
  nccl::in_flight calls(soon, never);
  for (std::size_t i = 0; i < 3; ++i) calls.note(std::array{"a", "b", "c"}[i], streams.on(i));
  CHECK(late(calls) == "a");
  streams.finish(0), streams.finish(2);
  CHECK(late(calls) == "b");
  calls.note("d", streams.on(1));
  streams.finish(1);
  CHECK(late(calls) == "");
  CHECK_FALSE(calls.oldest());
}

TEST_CASE("calls that are over make room, and a full store takes calls again once the oldest is over",
          "[nccl]") {
  held_streams const streams(2);
  nccl::in_flight calls(soon, never);
  streams.finish(0);
  for (int i = 0; i < 200; ++i) {
    calls.note("done", streams.on(0));
    streams.finish(0);
  }
  calls.note("stuck", streams.on(1));
  CHECK(late(calls) == "stuck");
  for (int i = 0; i < 200; ++i) calls.note("behind", streams.on(1));
  CHECK(late(calls) == "stuck");
  streams.finish(1);
  CHECK(late(calls) == "");
  held_streams const more(1);
  calls.note("after", more.on(0));
  CHECK(late(calls) == "after");
}

TEST_CASE("who stays inside of NCCL too long is told", "[nccl]") {
  nccl::gate gate(soon, never);
  {
    nccl::gate::pass const inside(gate, "ncclCommSplit", soon);
    CHECK(late(gate.calls) == "ncclCommSplit");
  }
  CHECK(late(gate.calls) == "");
}

TEST_CASE("a closed gate lets nobody in, be there still somebody inside or not", "[nccl]") {
  nccl::gate gate(never, never);
  std::promise<void> is_in, leave;
  std::thread slow([&] {
    nccl::gate::pass const inside(gate, "freed", never);
    is_in.set_value();
    leave.get_future().wait();
  });
  is_in.get_future().wait();
  auto waits = std::async(std::launch::async, [&] {
    CHECK_THROWS_WITH(nccl::gate::pass(gate, "all_to_all", never),
                      ContainsSubstring("NCCL was given up: a rank is silent"));
  });
  CHECK(gate.close("a rank is silent"));
  CHECK_FALSE(gate.close("something else"));
  CHECK(waits.wait_for(std::chrono::seconds(20)) == std::future_status::ready);
  gate.wait_until_empty(milliseconds(1));
  leave.set_value();
  slow.join();
  gate.wait_until_empty(never);
  CHECK_THROWS_AS(nccl::gate::pass(gate, "all_to_all", never), nccl::error);
}
