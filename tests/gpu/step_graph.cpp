#include "../host/lane_laws.hpp"
#include "device_memory.hpp"

#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/host.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <atomic>
#include <barrier>
#include <chrono>
#include <cstddef>
#include <future>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using namespace stretto;
using test::device_bytes;
using test::label;
using bytes = std::vector<unsigned char>;
using Catch::Matchers::ContainsSubstring;

namespace {

template <counts_mode Counts, bool Capturable> struct some_communicator {
  using tensor = int;
  struct routing {};
  struct handle {
    handle() = default;
    handle(handle&&) = default;
    handle& operator=(handle&&) = default;
  };
  static constexpr counts_mode counts = Counts;
  static constexpr int in_flight = 0;
  static constexpr bool capturable = Capturable;
  int rank() const;
  int ranks() const;
  int dispatch(int, routing, handle&);
  int combine(int, handle&);
  int dispatch_backward(int, handle&);
  int combine_backward(int, handle&);
};
static_assert(cuda::capturable_communicator<some_communicator<counts_mode::static_capacity, true>>);
static_assert(!cuda::capturable_communicator<some_communicator<counts_mode::static_capacity, false>>);
static_assert(cuda::capturable_communicator<some_communicator<counts_mode::device, true>>);
static_assert(!cuda::capturable_communicator<some_communicator<counts_mode::host, true>>);

void copy(device_bytes const& to, device_bytes const& from) {
  cuda::check(cudaMemcpyAsync(to.data(), from.data(), to.size(), cudaMemcpyDeviceToDevice,
                              cuda::thread_stream{}.current()),
              "cudaMemcpyAsync");
}

/// Hands bytes from buffer to buffer, each time on the other lane. What does not wait finds what the step before left.
class relay {
public:
  static constexpr std::size_t size = 64, hops = 12;

  explicit relay(cuda::lane_options const& options = {}) : lanes_(options) {
    for (std::size_t i = 0; i <= hops; ++i) buffers_.emplace_back(bytes(size));
  }
  void operator()() {
    for (std::size_t i = 0; i < hops; ++i) {
      auto const on = i % 2 == 0 ? lane::compute : lane::comm;
      if (i > 0) lanes_.wait(on, edges_[(i - 1) % 2]);
      lanes_.run(on, label(attn, on, static_cast<int>(i)), [this, i] {
        // Long enough for what does not wait to show.
        cuda::check(cudaMemsetAsync(scratch_.data(), 1, scratch_.size(), cuda::thread_stream{}.current()),
                    "cudaMemsetAsync");
        copy(buffers_[i + 1], buffers_[i]);
      });
      lanes_.record(on, edges_[i % 2]);
    }
    lanes_.drain();
  }
  void put(bytes const& what) {
    cuda::check(cudaMemcpy(buffers_.front().data(), what.data(), size, cudaMemcpyHostToDevice), "cudaMemcpy");
  }
  bytes found() const { return last().to_host(); }
  device_bytes const& first() const { return buffers_.front(); }
  device_bytes const& last() const { return buffers_.back(); }
  cuda::lanes<>& lanes() { return lanes_; }

private:
  std::vector<device_bytes> buffers_;
  device_bytes scratch_{std::size_t{128} << 20};
  cuda::lanes<>::event edges_[2];
  cuda::lanes<> lanes_;
};

bytes numbers(int from) {
  bytes made(relay::size);
  for (std::size_t i = 0; i < made.size(); ++i)
    made[i] = static_cast<unsigned char>(static_cast<std::size_t>(from) * 7 + i);
  return made;
}

bool replays_do_as_steps_do(relay& step, cuda::step_graph<>& graph, int count) {
  for (int i = 0; i < count; ++i) {
    step.put(numbers(i));
    graph.replay();
    graph.wait();
    if (step.found() != numbers(i)) return false;
  }
  return true;
}

} // namespace

TEST_CASE("a step on lanes is captured once and replayed with other data", "[gpu]") {
  auto const by = GENERATE(cuda::graph_launch::by_host, cuda::graph_launch::by_gpu);
  relay step;
  cuda::step_graph<> graph;
  graph.launch_by(by);
  step.put(numbers(100));
  graph.warm(step);
  CHECK(step.found() == numbers(100));
  step.put(numbers(101));
  graph.capture(step);
  // Nothing has run.
  CHECK(step.found() == numbers(100));
  CHECK(graph.launched_by() == by);
  CHECK(replays_do_as_steps_do(step, graph, 20));
  // Lanes serve ordinary steps as before, and can be captured again.
  step.put(numbers(102));
  step();
  CHECK(step.found() == numbers(102));
  graph.capture(step);
  CHECK(replays_do_as_steps_do(step, graph, 3));
}

TEST_CASE("a replay runs behind what its thread issued before, and in front of what it issues next",
          "[gpu]") {
  relay step;
  cuda::step_graph<> graph;
  graph.launch_by(GENERATE(cuda::graph_launch::by_host, cuda::graph_launch::by_gpu));
  graph.warm(step);
  graph.capture(step);
  cuda::stream own;
  device_bytes const slow(std::size_t{256} << 20), end{bytes(relay::size)};
  auto const current = cuda::thread_stream{}.enter(own.get());
  for (int i = 0; i < 5; ++i) {
    device_bytes const source(numbers(i));
    cuda::check(cudaMemsetAsync(slow.data(), i, slow.size(), own.get()), "cudaMemsetAsync");
    copy(step.first(), source);
    graph.replay();
    copy(end, step.last());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    CHECK(end.to_host() == numbers(i));
  }
}

TEST_CASE("a step that was never run is not captured, and none that was not captured is replayed", "[gpu]") {
  relay step;
  cuda::step_graph<> graph;
  CHECK_THROWS_WITH(graph.capture(step), ContainsSubstring("call warm first"));
  CHECK_THROWS_WITH(graph.replay(), ContainsSubstring("call capture first"));
}

TEST_CASE("a step whose nodes the GPU cannot issue is launched by the host, and why is told", "[gpu]") {
  relay step;
  int calls = 0;
  bool calls_host = true;
  auto const issue = [&] {
    if (calls_host)
      cuda::check(cudaLaunchHostFunc(
                      cuda::thread_stream{}.current(), [](void* of) { ++*static_cast<int*>(of); }, &calls),
                  "cudaLaunchHostFunc");
    step();
  };
  cuda::step_graph<> graph;
  graph.launch_by(cuda::graph_launch::by_gpu);
  graph.warm(issue);
  graph.capture(issue);
  CHECK(graph.launched_by() == cuda::graph_launch::by_host);
  CHECK_THAT(graph.why_by_host(), ContainsSubstring("cuda"));
  CHECK(replays_do_as_steps_do(step, graph, 3));
  CHECK(calls == 4);
  // The next capture is asked anew.
  calls_host = false;
  graph.capture(issue);
  CHECK(graph.launched_by() == cuda::graph_launch::by_gpu);
  CHECK(graph.why_by_host().empty());
  CHECK(replays_do_as_steps_do(step, graph, 3));
  CHECK(calls == 4);
}

TEST_CASE("an op that waits for the GPU cannot be captured and is named", "[gpu]") {
  relay step;
  cuda::step_graph<> graph;
  bool waits = false;
  auto const issue = [&] {
    auto& lanes = step.lanes();
    lanes.run(lane::comm, label(dispatch, lane::comm, 3, 2), [&waits] {
      if (waits) cuda::check(cudaStreamSynchronize(cuda::thread_stream{}.current()), "cudaStreamSynchronize");
    });
    step();
  };
  graph.warm(issue);
  waits = true;
  CHECK_THROWS_WITH(graph.capture(issue),
                    ContainsSubstring("F.dispatch of layer 3, microbatch 2 failed: cudaStreamSynchronize: "));
  CHECK_FALSE(graph.is_captured());
  waits = false;
  graph.capture(issue);
  CHECK(replays_do_as_steps_do(step, graph, 3));
}

TEST_CASE("lanes that time ops and wait for each of them do neither in a capture", "[gpu]") {
  relay step({.spans = 2 * relay::hops, .check_each_op = true});
  cuda::step_graph<> graph;
  graph.warm(step);
  step.lanes().clear_timeline();
  graph.capture(step);
  CHECK(replays_do_as_steps_do(step, graph, 3));
  CHECK(step.lanes().timeline().empty());
  step();
  CHECK(step.lanes().timeline().size() == relay::hops);
}

TEST_CASE("an op that throws ends the capture and not more", "[gpu]") {
  relay step;
  cuda::step_graph<> graph;
  graph.warm(step);
  auto const broken = [&step] {
    step.lanes().run(lane::compute, label(mlp, lane::compute, 1, 4),
                     [] { throw std::runtime_error("no expert"); });
    step();
  };
  CHECK_THROWS_WITH(graph.capture(broken),
                    ContainsSubstring("F.mlp of layer 1, microbatch 4 failed: no expert"));
  graph.capture(step);
  CHECK(replays_do_as_steps_do(step, graph, 3));
}

TEST_CASE("threads capture and replay graphs of their own on one GPU at the same time", "[gpu]") {
  constexpr int threads = 3;
  std::barrier together(threads);
  std::vector<char> good(threads);
  std::vector<std::thread> all;
  for (int which = 0; which < threads; ++which)
    all.emplace_back([&, which] {
      relay step;
      cuda::step_graph<> graph;
      graph.warm(step);
      bool kept = true;
      for (int round = 0; round < 5; ++round) {
        together.arrive_and_wait();
        try {
          graph.capture(step);
          kept = replays_do_as_steps_do(step, graph, 10) && kept;
        } catch (std::exception const&) {
          kept = false;
        }
      }
      good[static_cast<std::size_t>(which)] = kept;
    });
  for (auto& each : all) each.join();
  CHECK(good == std::vector<char>(threads, true));
}

namespace {

/// A step of one rank that sends bytes round, in several exchanges, and adds nothing: after as many as there are ranks
/// each has its own again.
template <class Exchange> class round_trip {
public:
  round_trip(host::group& group, int rank)
      : ranks_(static_cast<std::size_t>(group.ranks())),
        exchange_(group.communicator(rank), cuda::thread_stream{},
                  cuda::exchange_options{std::chrono::seconds(10),
                                         [&group] { return group.board().failed(); }, cuda::hand_on_turn}),
        to_(ranks_), from_(ranks_), lanes_({.rank = rank}, {}, &group.board()) {
    auto const me = static_cast<std::size_t>(rank);
    to_[(me + 1) % ranks_] = from_[(me + ranks_ - 1) % ranks_] = static_cast<int>(relay::size);
    for (std::size_t i = 0; i <= ranks_; ++i) buffers_.emplace_back(bytes(relay::size));
  }
  void operator()() {
    for (std::size_t i = 0; i < ranks_; ++i) {
      lanes_.run(lane::comm, label(dispatch, lane::comm, static_cast<int>(i)), [this, i] {
        if (breaks) throw std::runtime_error("no rows");
        exchange_.all_to_all(buffers_[i].data(), to_.data(), buffers_[i + 1].data(), from_.data(), 1);
      });
    }
    lanes_.drain();
  }
  void put(bytes const& what) {
    cuda::check(cudaMemcpy(buffers_.front().data(), what.data(), what.size(), cudaMemcpyHostToDevice),
                "cudaMemcpy");
  }
  bytes after(std::size_t hops) const { return buffers_[hops].to_host(); }
  bool breaks = false;

private:
  std::size_t ranks_;
  Exchange exchange_;
  std::vector<int> to_, from_;
  std::vector<device_bytes> buffers_;
  cuda::lanes<cuda::thread_stream, host::failure_board> lanes_;
};

using shared_graph = cuda::step_graph<cuda::thread_stream, cuda::no_graph_memory, host::communicator>;

template <class Exchange> void check_shared_graph(int count) {
  auto const by = GENERATE(cuda::graph_launch::by_host, cuda::graph_launch::by_gpu);
  host::group_options settings;
  settings.deadline = std::chrono::seconds(10);
  host::group group(count, settings);
  group.add_domain();
  std::vector<char> good(static_cast<std::size_t>(count));
  group.run([&](int rank) {
    cuda::check(cudaSetDevice(0), "cudaSetDevice");
    round_trip<Exchange> step(group, rank);
    shared_graph graph({}, {}, group.communicator(rank, 1), [&group] { return group.board().failed(); });
    graph.launch_by(by);
    graph.warm(step);
    graph.capture(step);
    bool kept = rank != 0 || graph.launched_by() == by;
    for (int i = 0; i < 20; ++i) {
      step.put(numbers(10 * i + rank));
      graph.replay();
      graph.wait();
      kept = kept && step.after(1) == numbers(10 * i + (rank + count - 1) % count) &&
             step.after(static_cast<std::size_t>(count)) == numbers(10 * i + rank);
    }
    step.put(numbers(rank));
    step();
    kept = kept && step.after(static_cast<std::size_t>(count)) == numbers(rank);
    good[static_cast<std::size_t>(rank)] = kept;
  });
  CHECK(good == std::vector<char>(static_cast<std::size_t>(count), true));
}

} // namespace

TEST_CASE("ranks that are threads are captured into one graph, staged rows between them", "[gpu]") {
  check_shared_graph<cuda::staged_exchange<host::communicator>>(GENERATE(1, 2, 4));
}

TEST_CASE("ranks that are threads are captured into one graph, pushed rows between them", "[gpu]") {
  check_shared_graph<cuda::peer_exchange<host::communicator>>(GENERATE(1, 2, 4));
}

TEST_CASE("an op of one rank that fails in a shared capture ends it for all, with its name", "[gpu]") {
  host::group group(3);
  group.add_domain();
  auto const run = [&](int rank) {
    round_trip<cuda::staged_exchange<host::communicator>> step(group, rank);
    shared_graph graph({}, {}, group.communicator(rank, 1), [&group] { return group.board().failed(); });
    graph.warm(step);
    step.breaks = rank == 1;
    graph.capture(step);
  };
  CHECK_THROWS_WITH(group.run(run),
                    ContainsSubstring("rank 1: F.dispatch of layer 0, microbatch 0 failed: no rows"));
}

TEST_CASE("a rank that does not end its part of a shared capture holds the others up until the deadline",
          "[gpu]") {
  host::group group(2);
  group.add_domain();
  std::promise<void> given_up;
  auto const over = given_up.get_future().share();
  std::vector<std::string> told(2);
  std::atomic<int> captured = 0;
  group.run([&](int rank) {
    cuda::check(cudaSetDevice(0), "cudaSetDevice");
    shared_graph graph({}, {}, group.communicator(rank, 1), {}, std::chrono::milliseconds(300));
    graph.warm([] {});
    try {
      graph.capture([&] {
        if (rank == 1) over.wait();
      });
    } catch (std::runtime_error const& problem) {
      told[static_cast<std::size_t>(rank)] = problem.what();
    }
    if (rank == 0) given_up.set_value();
    // Rank 1 may still be at the first.
    graph.capture([] {});
    captured += graph.is_captured();
  });
  // Whoever issues first keeps the other from its turn, or from its end.
  CHECK_THAT(told[0], ContainsSubstring("another rank"));
  CHECK(told[1] == "step_graph: another rank could not issue its step into the graph");
  CHECK(captured == 2);
}
