#include "laws/peers.hpp"
#include "exchanges.hpp"

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
using test::device_bytes;
using test::gpus_here;

namespace {

/// Enough of a tensor library: numbers in device memory, in handles that share it.
struct numbers {
  using tensor = std::shared_ptr<device_bytes const>;

  bool is_empty(tensor const& t) const { return !t; }
  tensor contiguous(tensor const& t) const { return t; }
  void* data(tensor const& t) const { return t->data(); }
  void describe(tensor const& t, tensor_head& head) const {
    head = {7, 1, {static_cast<std::int64_t>(t->size())}, t->size()};
  }
  tensor make(tensor_head const& head) const {
    cuda::detail::allocating_in_capture const allowed;
    return std::make_shared<device_bytes const>(head.bytes);
  }

  tensor lend(tensor const& base, std::function<void()> gone) const {
    return {base.get(), [base, gone = std::move(gone)](device_bytes const*) { gone(); }};
  }

  tensor of(std::vector<int> const& values) const {
    std::vector<unsigned char> raw(values.size() * sizeof(int));
    if (!raw.empty()) std::memcpy(raw.data(), values.data(), raw.size());
    return std::make_shared<device_bytes const>(raw);
  }
  /// -1 for the empty one.
  std::vector<int> read(tensor const& t) const {
    cuda::check(cudaStreamSynchronize(cuda::thread_stream{}.current()), "cudaStreamSynchronize");
    if (!t) return {-1};
    auto const raw = t->to_host();
    std::vector<int> values(raw.size() / sizeof(int));
    if (!raw.empty()) std::memcpy(values.data(), raw.data(), raw.size());
    return values;
  }
};

/// Memory as tensor libraries have it: what is dropped goes back to the stream that was current when it was made, and may be
/// used there at once.
class memory_of_streams {
public:
  using tensor = numbers::tensor;

  bool is_empty(tensor const& t) const { return !t; }
  tensor contiguous(tensor const& t) const { return t; }
  void* data(tensor const& t) const { return t->data(); }
  void describe(tensor const& t, tensor_head& head) const { numbers{}.describe(t, head); }
  tensor lend(tensor const& base, std::function<void()> gone) const {
    return numbers{}.lend(base, std::move(gone));
  }
  tensor make(tensor_head const& head) const {
    auto const pool = pools_;
    auto& mine = (*pool)[cuda::thread_stream{}.current()];
    std::unique_ptr<device_bytes const> found;
    if (mine.empty()) {
      found = std::make_unique<device_bytes const>(head.bytes);
    } else {
      found = std::move(mine.back());
      mine.pop_back();
    }
    return {found.release(), [&mine, pool](device_bytes const* gone) { mine.emplace_back(gone); }};
  }

private:
  using pools = std::map<cudaStream_t, std::vector<std::unique_ptr<device_bytes const>>>;
  /// Of one rank. All tensors have one size.
  std::shared_ptr<pools> pools_ = std::make_shared<pools>();
};

using letters = host::peers<cuda::letter<numbers::tensor>>;
using mailbox = host::mailbox<cuda::letter<numbers::tensor>>;
using gpu_peers = cuda::peers<numbers, letters>;
static_assert(peer_adapter<gpu_peers>);

} // namespace

TEST_CASE("messages of device memory keep the laws of peers", "[gpu]") {
  int const gpus = GENERATE(1, 2);
  if (gpus > gpus_here()) return;
  host::group group(2);
  mailbox mail(group);
  std::vector<int> kept(2);
  group.run([&](int me) {
    cuda::check(cudaSetDevice(me % gpus), "cudaSetDevice");
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    letters hosts(mail, me);
    gpu_peers peers(hosts);
    numbers const library;
    int const other = 1 - me;
    auto const make = [&](int value) { return library.of(std::vector<int>(1000, value)); };
    auto const read = [&](numbers::tensor const& t) { return library.read(t).back(); };
    auto const spoil = [&](numbers::tensor& t) {
      cuda::check(cudaMemsetAsync(t->data(), 0x55, t->size(), own.get()), "cudaMemsetAsync");
    };
    bool all = laws::messages_are_found_by_name(peers, me, other, make, read);
    all = laws::the_oldest_comes_first(peers, me, other, make, read) && all;
    all = laws::an_empty_tensor_arrives_empty(peers, me, other, make, read) && all;
    all = laws::what_arrives_is_its_own(peers, me, other, make, read, spoil) && all;
    kept[static_cast<std::size_t>(me)] = all;
    group.communicator(me).barrier();
  });
  CHECK(kept == std::vector<int>{1, 1});
}

TEST_CASE("messages along a pipeline on lanes, under random delays, step after step", "[gpu]") {
  constexpr int ranks = 4, steps = 10, microbatches = 8;
  int const gpus = GENERATE(1, 2);
  if (gpus > gpus_here()) return;
  host::group group(ranks);
  mailbox mail(group);
  std::vector<int> wrong(ranks);
  group.run([&](int me) {
    cuda::check(cudaSetDevice(me % gpus), "cudaSetDevice");
    device_bytes const scratch(std::size_t{256} << 20);
    cuda::check(cudaMemset(scratch.data(), 0, scratch.size()), "cudaMemset");
    cuda::lanes<cuda::thread_stream, host::failure_board> lanes({.rank = me, .peers = true}, {},
                                                                &group.board());
    letters hosts(mail, me);
    gpu_peers peers(hosts);
    numbers const library;
    std::mt19937 random(static_cast<unsigned>(me));
    cuda::lanes<cuda::thread_stream, host::failure_board>::event came, left;
    for (int step = 0; step < steps; ++step) {
      std::vector<numbers::tensor> arrived(microbatches);
      for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
        auto const here = static_cast<std::size_t>(microbatch);
        message const down{false, me, microbatch, 0, me + 1}, up{false, me - 1, microbatch, 0, me - 1};
        // What the first rank sends goes through all, each of which adds its delay.
        int const count = 1 + 5000 * (microbatch % 3);
        if (me == 0)
          arrived[here] =
              library.of(std::vector<int>(static_cast<std::size_t>(count), 100 * step + microbatch));
        else
          lanes.run(lane::receive_lower, label_of(up, lane::receive_lower),
                    [&] { arrived[here] = peers.receive(up); });
        lanes.record(lane::receive_lower, came);
        lanes.wait(lane::compute, came);
        lanes.run(lane::compute, {mlp, pass::forward, lane::compute, 0, microbatch}, [&] {
          if (random() % 3 == 0)
            cuda::check(cudaMemsetAsync(scratch.data(), 1, scratch.size(), lanes.stream(lane::compute)),
                        "cudaMemsetAsync");
        });
        lanes.record(lane::compute, left);
        lanes.wait(lane::send_higher, left);
        if (me + 1 < ranks)
          lanes.run(lane::send_higher, label_of(down, lane::send_higher),
                    [&] { peers.send(down, arrived[here]); });
      }
      lanes.drain();
      for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
        auto const found = library.read(arrived[static_cast<std::size_t>(microbatch)]);
        wrong[static_cast<std::size_t>(me)] +=
            found !=
            std::vector<int>(static_cast<std::size_t>(1 + 5000 * (microbatch % 3)), 100 * step + microbatch);
      }
    }
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
      } catch (host::step_error const& problem) {
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
  if (gpus > gpus_here()) return;
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
    for (int replay = 0; replay < 10; ++replay) {
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
  constexpr int messages = 60;
  constexpr std::size_t size = std::size_t{1} << 20;
  int const gpus = GENERATE(1, 2);
  bool const gradient = GENERATE(false, true);
  if (gpus > gpus_here()) return;
  host::group group(2);
  mailbox mail(group);
  int wrong = 0;
  group.run([&](int me) {
    cuda::check(cudaSetDevice(me % gpus), "cudaSetDevice");
    test::random_delay delay(me);
    cuda::lanes<cuda::thread_stream, host::failure_board> lanes({.rank = me, .peers = true}, {},
                                                                &group.board());
    letters hosts(mail, me);
    memory_of_streams const library;
    cuda::peers<memory_of_streams, letters> peers(hosts, library);
    cuda::lanes<cuda::thread_stream, host::failure_board>::event made, came;
    device_bytes const kept(messages * size);
    numbers::tensor now;
    auto const in_place = [=](int i) { return static_cast<std::size_t>(i) * size; };
    for (int i = 0; i < messages; ++i) {
      message const name{gradient, 1, i, 0, 1 - me};
      if (me == 0) {
        lanes.run(lane::compute, {mlp, pass::backward, lane::compute, 0, i}, [&] {
          now = library.make({7, 1, {static_cast<std::int64_t>(size)}, size});
          cuda::check(cudaMemsetAsync(now->data(), i + 1, size, lanes.stream(lane::compute)),
                      "cudaMemsetAsync");
        });
        lanes.record(lane::compute, made);
        lanes.wait(lane::send_higher, made);
        lanes.run(lane::send_higher, label_of(name, lane::send_higher), [&] {
          delay(lanes.stream(lane::send_higher));
          peers.send(name, now);
          // As the executor drops a gradient. An activation goes back on the lane that made it, behind the send.
          if (gradient) now = nullptr;
        });
        lanes.record(lane::send_higher, came);
        if (!gradient) lanes.wait(lane::compute, came);
        if (!gradient)
          lanes.run(lane::compute, {mlp, pass::backward, lane::compute, 0, i}, [&] { now = nullptr; });
      } else {
        lanes.run(lane::receive_lower, label_of(name, lane::receive_lower),
                  [&] { now = peers.receive(name); });
        lanes.record(lane::receive_lower, came);
        lanes.wait(lane::compute, came);
        lanes.run(lane::compute, {mlp, pass::backward, lane::compute, 0, i}, [&] {
          delay(lanes.stream(lane::compute));
          cuda::check(cudaMemcpyAsync(kept.data() + in_place(i), now->data(), size, cudaMemcpyDeviceToDevice,
                                      lanes.stream(lane::compute)),
                      "cudaMemcpyAsync");
          now = nullptr;
        });
      }
    }
    lanes.drain();
    group.communicator(me).barrier();
    if (me == 0) return;
    auto const found = kept.to_host();
    for (int i = 0; i < messages; ++i)
      wrong += std::count(found.begin() + static_cast<std::ptrdiff_t>(in_place(i)),
                          found.begin() + static_cast<std::ptrdiff_t>(in_place(i + 1)),
                          i + 1) != static_cast<std::ptrdiff_t>(size);
  });
  CHECK(wrong == 0);
}
