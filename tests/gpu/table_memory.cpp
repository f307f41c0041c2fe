#include "../torch/table_model.hpp"
#include "under_a_tool.hpp"

#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/torch_cuda.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdio>

using namespace table_test;
namespace torch_cuda = stretto::torch_cuda;

namespace {

/// Streams that tell when an op was issued.
class watched_streams : public cuda::lanes<torch_cuda::current_stream> {
  using base = cuda::lanes<torch_cuda::current_stream>;

public:
  template <class Task> void run(lane on, op_label const& label, Task task) {
    base::run(on, label, task);
    after();
  }
  std::function<void()> after = [] {};
};

template <class... Policies> void check_table(char const* policy) {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  // Before it has made something the allocator tells nothing.
  static_cast<void>(at::empty({1}, at::TensorOptions(at::kCUDA)));
  // Sizes that the allocator rounds, and whole pieces of 2 MiB, which it does not.
  for (shape const& s : {shape{100, 24, at::kCUDA}, shape{4096, 256, at::kCUDA}})
    for (int const microbatches : {1, 4}) {
      if (test::under_a_tool() && microbatches == 1) continue;
      CAPTURE(policy, s.rows, microbatches);
      int const layers = 3;
      watched_streams lanes;
      auto const found =
          watch<Schedule<Network, Policies...>>(s, layers, microbatches, lanes, torch_cuda::requested_bytes);
      CHECK(found.measured == found.expected);
      CHECK(found.left == 0);
      torch_cuda::restart_peak();
      auto const before = torch_cuda::live_bytes();
      auto const taken =
          watch<Schedule<Network, Policies...>>(s, layers, microbatches, lanes, torch_cuda::live_bytes);
      auto const by_table = most(taken.expected), allocated = most(taken.measured);
      // Without the parameters, which `watch` makes.
      auto const within = torch_cuda::peak_bytes() - before - taken.kept;
      std::printf("%-24s %5ld rows, %d layers, %d microbatches: at most %zu bytes by the table, %zu "
                  "allocated, %zu with what ops make for themselves\n",
                  policy, static_cast<long>(s.rows), layers, microbatches, by_table, allocated, within);
      CHECK(allocated >= by_table);
      if (s.rows == 4096)
        CHECK(allocated - by_table <= std::size_t{512} * static_cast<std::size_t>(microbatches));
    }
}

} // namespace

TEST_CASE("after every op live on a GPU the tensors that the table says", "[gpu]") {
  SECTION("Serial") { check_table<Serial>("Serial"); }
  SECTION("TwoStream1F1B") { check_table<TwoStream1F1B>("TwoStream1F1B"); }
  SECTION("TwoStream1F1B, SplitDW") { check_table<TwoStream1F1B, SplitDW>("TwoStream1F1B, SplitDW"); }
}

TEST_CASE("a thousand steps on a GPU take no more memory than ten", "[gpu][building-blocks-03]") {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  shape const s{512, 128, at::kCUDA};
  layer_list<Network> network;
  fill(network, s, 2);
  st::stream_tensors tensors;
  cuda::lanes<torch_cuda::current_stream> lanes;
  executor run(Schedule<Network, TwoStream1F1B, SplitDW>{}, backend{tensors, lanes}, network,
               sizes{.microbatches = 3});
  for (int step = 0; step < 10; ++step) run();
  auto const live = torch_cuda::live_bytes(), reserved = torch_cuda::reserved_bytes();
  torch_cuda::restart_peak();
  run();
  auto const peak = torch_cuda::peak_bytes();
  torch_cuda::restart_peak();
  for (int step = 10, steps = test::times(1000, 30); step < steps; ++step) run();
  CHECK(torch_cuda::live_bytes() == live);
  CHECK(torch_cuda::peak_bytes() == peak);
  CHECK(torch_cuda::reserved_bytes() == reserved);
}

TEST_CASE("an op that finds no memory is named, and the next step runs", "[gpu]") {
  cuda::lanes<torch_cuda::current_stream> lanes;
  int ran = 0;
  lanes.run(lane::compute, {mlp, pass::forward, lane::compute, 2, 1},
            [] { static_cast<void>(at::empty({std::int64_t{1} << 46}, at::TensorOptions(at::kCUDA))); });
  lanes.run(lane::compute, {mlp, pass::forward, lane::compute, 3, 1}, [&ran] { ++ran; });
  CHECK_THROWS_WITH(lanes.drain(),
                    Catch::Matchers::StartsWith("rank 0: F.mlp of layer 2, microbatch 1 failed: ") &&
                        Catch::Matchers::ContainsSubstring("out of memory"));
  CHECK(ran == 0);
  lanes.run(lane::compute, {mlp, pass::forward, lane::compute, 3, 1},
            [&ran] { ran += at::ones({16}, at::TensorOptions(at::kCUDA)).sum().item<float>() == 16; });
  lanes.drain();
  CHECK(ran == 1);
}
