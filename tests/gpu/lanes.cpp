#include "../host/lane_laws.hpp"
#include "device_memory.hpp"

#include <stretto/adapters/cuda.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdint>
#include <cstring>
#include <memory>
#include <random>

using namespace stretto;
using test::device_bytes;
using test::label;

namespace {

/// Runs the task of an op as a host function on its lane's stream, so that laws about host code hold for the stream.
class host_functions_in_streams {
public:
  using event = cuda::lanes<>::event;

  host_functions_in_streams() : lanes_({.peers = true}) {}
  template <class Task> void run(lane on, op_label const& what, Task task) {
    lanes_.run(on, what, [task] {
      auto call = [](void* stored) {
        std::unique_ptr<Task> const mine(static_cast<Task*>(stored));
        (*mine)();
      };
      cuda::check(cudaLaunchHostFunc(cuda::thread_stream{}.current(), call, new Task(task)),
                  "cudaLaunchHostFunc");
    });
  }
  void record(lane on, event& mark) { lanes_.record(on, mark); }
  void wait(lane on, event const& mark) { lanes_.wait(on, mark); }
  void drain() { lanes_.drain(); }
  cuda::lanes<>& inner() { return lanes_; }

private:
  cuda::lanes<> lanes_;
};

static_assert(lane_adapter<host_functions_in_streams>);

/// Takes long enough on the GPU for what forgot to wait to show.
struct delay {
  device_bytes scratch{std::size_t{256} << 20};
  void operator()(cudaStream_t on) const {
    cuda::check(cudaMemsetAsync(scratch.data(), 1, scratch.size(), on), "cudaMemsetAsync");
  }
};

/// Random ops of copies between device cells; whether each found what the waits before it promised.
template <class Lanes>
bool copies_find_what_waits_promise(Lanes& lanes, std::vector<lane> const& on, unsigned seed) {
  constexpr std::size_t ops = 300;
  std::vector<std::uint32_t> stamps(ops);
  for (std::size_t i = 0; i < ops; ++i) stamps[i] = static_cast<std::uint32_t>(i + 1);
  std::vector<unsigned char> raw(ops * 4);
  std::memcpy(raw.data(), stamps.data(), raw.size());
  device_bytes const stamp(raw), done(std::vector<unsigned char>(ops * 4)),
      seen(std::vector<unsigned char>(ops * ops * 4));
  std::vector<delay> delays(on.size());
  std::vector<typename Lanes::event> events(3);
  std::vector<int> last(on.size(), -1), recorded(events.size(), -1);
  std::vector<std::vector<std::size_t>> promised(on.size());
  std::vector<std::size_t> needs;
  std::mt19937 random(seed);
  for (std::size_t i = 0; i < ops; ++i) {
    std::size_t const at = random() % on.size();
    std::size_t const event = random() % events.size();
    switch (random() % 4) {
    case 0:
      lanes.record(on[at], events[event]);
      recorded[event] = last[at];
      break;
    case 1:
      lanes.wait(on[at], events[event]);
      if (recorded[event] >= 0) promised[at].push_back(static_cast<std::size_t>(recorded[event]));
      break;
    default:
      bool const slow = random() % 4 == 0;
      lanes.run(on[at], label(attn, on[at]), [&, at, i, slow] {
        cudaStream_t const here = cuda::thread_stream{}.current();
        if (slow) delays[at](here);
        auto const copy = [here](void* to, void const* from) {
          cuda::check(cudaMemcpyAsync(to, from, 4, cudaMemcpyDeviceToDevice, here), "cudaMemcpyAsync");
        };
        for (std::size_t const need : promised[at]) {
          copy(seen.data() + 4 * needs.size(), done.data() + 4 * need);
          needs.push_back(need);
        }
        promised[at].clear();
        copy(done.data() + 4 * i, stamp.data() + 4 * i);
      });
      last[at] = static_cast<int>(i);
    }
  }
  lanes.drain();
  auto const found = seen.to_host();
  for (std::size_t i = 0; i < needs.size(); ++i)
    if (std::memcmp(&found[4 * i], &stamps[needs[i]], 4) != 0) return false;
  return true;
}

struct forgetful_lanes : cuda::lanes<> {
  using cuda::lanes<>::lanes;
  void wait(lane, event const&) {}
};

} // namespace

TEST_CASE("streams keep the laws of lanes", "[gpu]") {
  host_functions_in_streams lanes;
  CHECK(test::runs_in_order_of_issue(lanes));
  CHECK(test::wait_orders(lanes, 100));
  CHECK(test::wait_binds_to_the_last_record(lanes, 100));
  CHECK(test::trivial_waits_go_through(lanes));
  CHECK(test::random_waits_hold(lanes, test::all_lanes(), 7, 2000));
}

TEST_CASE("device copies in streams find what waits promise, and forgotten waits show", "[gpu]") {
  auto const peers = GENERATE(false, true);
  auto const on = peers ? test::all_lanes() : std::vector<lane>{lane::compute, lane::comm};
  for (unsigned seed = 1; seed <= 3; ++seed) {
    cuda::lanes<> lanes({.peers = peers});
    CHECK(copies_find_what_waits_promise(lanes, on, seed));
  }
  forgetful_lanes broken({.peers = peers});
  CHECK_FALSE(copies_find_what_waits_promise(broken, on, 1));
}

TEST_CASE("a record after the wait leaves the wait alone", "[gpu]") {
  host_functions_in_streams lanes;
  typename cuda::lanes<>::event edge, passed;
  std::atomic<bool> first = false, second = false;
  lanes.run(lane::comm, label(dispatch, lane::comm), [&first] { test::comes_true(first, 5000); });
  lanes.record(lane::comm, edge);
  lanes.wait(lane::compute, edge);
  lanes.record(lane::compute, passed);
  lanes.run(lane::comm, label(combine, lane::comm), [&second] { test::comes_true(second, 5000); });
  lanes.record(lane::comm, edge);
  CHECK(cudaEventQuery(passed.mark.get()) == cudaErrorNotReady);
  first = true;
  bool through = false;
  for (int i = 0; i < 2000 && !through; ++i) {
    through = cudaEventQuery(passed.mark.get()) == cudaSuccess;
    test::sleep_ms(1);
  }
  CHECK(through);
  second = true;
  lanes.drain();
}

TEST_CASE("a step runs behind what its thread issued before", "[gpu]") {
  delay const slow;
  std::vector<unsigned char> const ones(4, 1);
  device_bytes const source(ones), middle(std::vector<unsigned char>(4)), end(std::vector<unsigned char>(4));
  cuda::lanes<> lanes;
  cuda::stream own;
  cuda::thread_stream const follow;
  auto const copy = [&follow](device_bytes const& to, device_bytes const& from) {
    cuda::check(cudaMemcpyAsync(to.data(), from.data(), 4, cudaMemcpyDeviceToDevice, follow.current()),
                "cudaMemcpyAsync");
  };
  auto const on = GENERATE(lane::compute, lane::comm);
  {
    auto const current = follow.enter(own.get());
    slow(own.get());
    copy(middle, source);
    lanes.run(on, label(attn, on), [&] { copy(end, middle); });
    lanes.drain();
  }
  CHECK(end.to_host() == ones);
}

TEST_CASE("an op that throws is named, what follows is skipped, and the next step runs", "[gpu]") {
  cuda::lanes<> lanes({.rank = 3});
  int ran = 0;
  lanes.run(lane::compute, label(mlp, lane::compute, 2, 5, pass::backward_input),
            [] { throw std::runtime_error("no expert"); });
  lanes.run(lane::comm, label(combine, lane::comm), [&ran] { ++ran; });
  CHECK_THROWS_WITH(lanes.drain(), "rank 3: I.mlp of layer 2, microbatch 5 failed: no expert");
  CHECK(ran == 0);
  lanes.run(lane::comm, label(combine, lane::comm), [&ran] { ++ran; });
  lanes.drain();
  CHECK(ran == 1);
}

TEST_CASE("a CUDA call that fails inside an op is named with its op", "[gpu]") {
  cuda::lanes<> lanes;
  lanes.run(lane::comm, label(dispatch, lane::comm, 1, 4),
            [] { cuda::check(cudaSetDevice(9999), "cudaSetDevice"); });
  CHECK_THROWS_WITH(
      lanes.drain(),
      Catch::Matchers::StartsWith("rank 0: F.dispatch of layer 1, microbatch 4 failed: cudaSetDevice: "));
  CHECK_THROWS_WITH(lanes.run(lane::send_lower, label(attn), [] {}),
                    Catch::Matchers::ContainsSubstring("no lane 'send lower'"));
}

TEST_CASE("the timeline has every op, in time", "[gpu]") {
  delay const slow;
  cuda::lanes<> lanes({.rank = 1, .spans = 8, .ranges = true});
  for (int step = 0; step < 2; ++step) {
    lanes.clear_timeline();
    typename cuda::lanes<>::event edge;
    for (int i = 0; i < 3; ++i)
      lanes.run(lane::compute, label(attn, lane::compute, i), [&] { slow(lanes.stream(lane::compute)); });
    lanes.record(lane::compute, edge);
    lanes.wait(lane::comm, edge);
    lanes.run(lane::comm, label(dispatch, lane::comm, 3), [&] { slow(lanes.stream(lane::comm)); });
    lanes.drain();
    auto const spans = lanes.timeline();
    REQUIRE(spans.size() == 4);
    double last = 0;
    for (int i = 0; i < 4; ++i) {
      auto const& each = spans[static_cast<std::size_t>(i)];
      CHECK(each.label.layer == i);
      CHECK(each.rank == 1);
      CHECK(each.start_us >= last);
      CHECK(each.end_us > each.start_us + 10);
      last = each.end_us;
    }
  }
}
