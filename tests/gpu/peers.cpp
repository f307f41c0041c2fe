#include "message_checks.hpp"

#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/host.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

using namespace stretto;
using namespace test;

namespace {

using letters = host::peers<cuda::letter<numbers::tensor>>;
using mailbox = host::mailbox<cuda::letter<numbers::tensor>>;
using gpu_peers = cuda::peers<numbers, letters>;
static_assert(peer_adapter<gpu_peers>);

} // namespace

TEST_CASE("messages of device memory keep the laws of peers", "[gpu]") {
  int const gpus = GENERATE(1, 2);
  if (is_left_out(2, 2, gpus)) return;
  need_gpus(gpus);
  host::group group(2);
  mailbox mail(group);
  std::vector<int> kept(2);
  group.run([&](int me) {
    use_gpu_of(me, gpus);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    letters hosts(mail, me);
    gpu_peers peers(hosts);
    kept[static_cast<std::size_t>(me)] = keeps_the_laws_of_peers(peers, me, own.get());
    group.communicator(me).barrier();
  });
  CHECK(kept == std::vector<int>{1, 1});
}

TEST_CASE("messages along a pipeline on lanes, under random delays, step after step", "[gpu]") {
  constexpr int ranks = 4;
  int const gpus = GENERATE(1, 2);
  if (is_left_out(2, 2, gpus)) return;
  need_gpus(gpus);
  host::group group(ranks);
  mailbox mail(group);
  std::vector<int> wrong(ranks);
  group.run([&](int me) {
    use_gpu_of(me, gpus);
    peer_lanes lanes({.rank = me, .peers = true}, {}, &group.board());
    letters hosts(mail, me);
    gpu_peers peers(hosts);
    wrong[static_cast<std::size_t>(me)] = wrong_along_a_pipeline(peers, lanes, me, ranks);
    group.communicator(me).barrier();
  });
  CHECK(wrong == std::vector<int>(ranks));
}

TEST_CASE("a receive whose sender has failed ends, and a sender may leave before its message is taken",
          "[gpu]") {
  host::group group(2, {.deadline = std::chrono::milliseconds(3000)});
  mailbox mail(group);
  std::string told;
  std::vector<int> got;
  group.run([&](int me) {
    numbers const library;
    cuda::lanes<cuda::thread_stream, host::failure_board> lanes({.rank = me, .peers = true}, {},
                                                                &group.board());
    message const name{true, 1, 0, 0, 1 - me};
    {
      letters hosts(mail, me);
      gpu_peers peers(hosts);
      if (me == 0)
        lanes.run(lane::compute, {mlp, pass::forward, lane::compute, 0, 3},
                  [] { throw std::runtime_error("no way"); });
      else
        lanes.run(lane::receive_lower, label_of(name, lane::receive_lower),
                  [&] { static_cast<void>(peers.receive(name)); });
      try {
        lanes.drain();
      } catch (step_error const& problem) {
        if (me == 1) told = problem.what();
      }
    }
    group.reset();
    letters hosts(mail, me);
    auto peers = std::make_unique<gpu_peers>(hosts);
    if (me == 0)
      lanes.run(lane::send_higher, label_of(name, lane::send_higher), [&] {
        peers->send(name, library.of({4, 5}));
      });
    if (me == 0) peers.reset();
    group.communicator(me).barrier();
    numbers::tensor arrived;
    if (me == 1)
      lanes.run(lane::receive_lower, label_of(name, lane::receive_lower),
                [&] { arrived = peers->receive(name); });
    lanes.drain();
    if (me == 1) got = library.read(arrived);
    group.communicator(me).barrier();
  });
  CHECK(told == "rank 0: F.mlp of layer 0, microbatch 3 failed: no way");
  CHECK(got == std::vector<int>{4, 5});
}

TEST_CASE("messages in one capture of all ranks bring what every replay sends", "[gpu]") {
  constexpr int ranks = 3, microbatches = 6;
  int const gpus = GENERATE(1, 2);
  if (is_left_out(2, 2, gpus)) return;
  need_gpus(gpus);
  host::group group(ranks);
  mailbox mail(group);
  std::vector<int> wrong(ranks);
  group.run([&](int me) {
    cuda::check(cudaSetDevice(me % gpus), "cudaSetDevice");
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    letters hosts(mail, me);
    gpu_peers peers(hosts, {}, {}, cuda::hand_on_turn);
    numbers const library;
    std::vector<numbers::tensor> first(microbatches), last(microbatches);
    if (me == 0)
      for (auto& each : first) each = library.of(std::vector<int>(1000, -7));
    auto const pass_on = [&] {
      for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
        auto const here = static_cast<std::size_t>(microbatch);
        numbers::tensor came = me == 0 ? first[here] : peers.receive({false, me - 1, microbatch, 0, me - 1});
        if (me + 1 < ranks) peers.send({false, me, microbatch, 0, me + 1}, came);
        // Kept, as graphs do with their memory.
        last[here] = came;
      }
    };
    pass_on();
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    std::vector<numbers::tensor> const before = last;
    test::graph_of_all graph({}, {}, group.communicator(me));
    graph.warm(pass_on);
    graph.capture(pass_on);
    for (int replay = 0; replay < times(10, 2); ++replay) {
      for (int microbatch = 0; me == 0 && microbatch < microbatches; ++microbatch) {
        std::vector<int> const values(1000, 100 * replay + microbatch);
        cuda::check(cudaMemcpy(first[static_cast<std::size_t>(microbatch)]->data(), values.data(), 4000,
                               cudaMemcpyHostToDevice),
                    "cudaMemcpy");
      }
      // Such a copy may go on behind its call, and no stream of the graph waits for it.
      cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      graph.replay();
      graph.wait();
      for (int microbatch = 0; microbatch < microbatches; ++microbatch)
        wrong[static_cast<std::size_t>(me)] += library.read(last[static_cast<std::size_t>(microbatch)]) !=
                                               std::vector<int>(1000, 100 * replay + microbatch);
    }
    group.communicator(me).barrier();
  });
  CHECK(wrong == std::vector<int>(ranks));
}

TEST_CASE("what is dropped behind a send or a read is not written over too early", "[gpu]") {
  int const gpus = GENERATE(1, 2);
  bool const gradient = GENERATE(false, true);
  if (is_left_out(2, 2, gpus)) return;
  need_gpus(gpus);
  host::group group(2);
  mailbox mail(group);
  std::vector<int> wrong(2);
  group.run([&](int me) {
    use_gpu_of(me, gpus);
    peer_lanes lanes({.rank = me, .peers = true}, {}, &group.board());
    letters hosts(mail, me);
    memory_of_streams const library;
    cuda::peers<memory_of_streams, letters> peers(hosts, library);
    wrong[static_cast<std::size_t>(me)] = overwritten(peers, library, lanes, me, gradient);
    group.communicator(me).barrier();
  });
  CHECK(wrong == std::vector<int>(2));
}
