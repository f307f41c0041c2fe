#pragma once

#include "exchanges.hpp"
#include "laws/peers.hpp"

#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <vector>

/// What messages of device memory are checked with, between threads and between processes.
namespace test {

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

using peer_lanes = cuda::lanes<cuda::thread_stream, host::failure_board>;

/// Of two ranks, on a stream that is current.
template <class Peers> bool keeps_the_laws_of_peers(Peers& peers, int me, cudaStream_t own) {
  numbers const library;
  int const other = 1 - me;
  auto const make = [&](int value) { return library.of(std::vector<int>(1000, value)); };
  auto const read = [&](numbers::tensor const& t) { return library.read(t).back(); };
  auto const spoil = [&](numbers::tensor& t) {
    cuda::check(cudaMemsetAsync(t->data(), 0x55, t->size(), own), "cudaMemsetAsync");
  };
  bool all = laws::messages_are_found_by_name(peers, me, other, make, read);
  all = laws::the_oldest_comes_first(peers, me, other, make, read) && all;
  all = laws::an_empty_tensor_arrives_empty(peers, me, other, make, read) && all;
  return laws::what_arrives_is_its_own(peers, me, other, make, read, spoil) && all;
}

/// Steps of a pipeline on lanes, under random delays: how many of the messages that this rank handed on were wrong.
template <class Peers> int wrong_along_a_pipeline(Peers& peers, peer_lanes& lanes, int me, int ranks) {
  int const steps = times(10, 2);
  constexpr int microbatches = 8;
  device_bytes const scratch(delay_bytes());
  cuda::check(cudaMemset(scratch.data(), 0, scratch.size()), "cudaMemset");
  numbers const library;
  std::mt19937 random(static_cast<unsigned>(me));
  peer_lanes::event came, left;
  int wrong = 0;
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
      wrong += found != std::vector<int>(static_cast<std::size_t>(1 + 5000 * (microbatch % 3)),
                                         100 * step + microbatch);
    }
  }
  return wrong;
}

/// Rank 0 of two sends, and drops what it has sent as the executor does; rank 1 drops what it has read. How many messages
/// another one was written over too early; `library` is that of `peers`.
template <class Peers>
int overwritten(Peers& peers, memory_of_streams const& library, peer_lanes& lanes, int me, bool gradient) {
  int const messages = times(60, 12);
  constexpr std::size_t size = std::size_t{1} << 20;
  random_delay delay(me);
  peer_lanes::event made, came;
  device_bytes const kept(static_cast<std::size_t>(messages) * size);
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
      lanes.run(lane::receive_lower, label_of(name, lane::receive_lower), [&] { now = peers.receive(name); });
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
  int wrong = 0;
  if (me == 0) return wrong;
  auto const found = kept.to_host();
  for (int i = 0; i < messages; ++i)
    wrong += std::count(found.begin() + static_cast<std::ptrdiff_t>(in_place(i)),
                        found.begin() + static_cast<std::ptrdiff_t>(in_place(i + 1)),
                        i + 1) != static_cast<std::ptrdiff_t>(size);
  return wrong;
}

} // namespace test
