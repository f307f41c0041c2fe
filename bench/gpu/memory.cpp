/// Memory of a two-stream step on one GPU: through the executor, whose releases come from the table of ops, and written by
/// hand with `record_stream`, as trainers do. The same operations in the same order. Prints JSON. Arguments: NAME=NUMBER.

#include "../../tests/torch/table_model.hpp"
#include "program.hpp"

#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/torch_cuda.hpp>

#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace table_test;
namespace ag = ::torch::autograd;
using stretto::torch_cuda::current_stream;

bench::settings setting{{"rows", 8192}, {"width", 1024}, {"layers", 4}, {"microbatches", 8}, {"steps", 30}};

/// What one layer keeps of one microbatch, and the gradients on their way.
struct in_flight {
  at::Tensor hidden, tokens, arrived, rows, residual; ///< leaves
  at::Tensor made_tokens, made_residual, made_arrived, made_rows, made_hidden; ///< roots
  at::Tensor d_rows, d_residual, d_arrived, d_tokens;
};

class step_by_hand {
public:
  step_by_hand(shape const& s, int layers, int microbatches, bool two_streams)
      : shape_(s), microbatches_(microbatches), comm_(two_streams ? own_comm_.get() : compute_.get()),
        input_(s.draw({s.rows, s.width}, 1)), embedding_("embedding", s.draw({s.width, s.width}, 2)),
        state_(static_cast<std::size_t>(layers),
               std::vector<in_flight>(static_cast<std::size_t>(microbatches))) {
    for (int i = 0; i < layers; ++i) {
      attention_.emplace_back("attention", s.draw({s.width, 2 * s.width}, 3));
      experts_.emplace_back("experts", s.draw({2, 2 * s.width, s.width}, 4));
    }
    hidden_.resize(static_cast<std::size_t>(microbatches));
    d_hidden_.resize(static_cast<std::size_t>(microbatches));
    embedded_.resize(static_cast<std::size_t>(microbatches));
    edges_.resize(static_cast<std::size_t>(microbatches));
  }

  void run() {
    for (int turn = 0; turn <= microbatches_; ++turn) {
      bool const forward = turn < microbatches_;
      bool const backward = turn > 0;
      auto const f = static_cast<std::size_t>(turn), b = f - 1;
      if (forward) embed(f);
      if (backward) head(b);
      for (std::size_t i = 0; i < state_.size(); ++i) {
        auto const back = state_.size() - 1 - i;
        if (backward) combine_backward(b, back);
        if (forward) attention(f, i);
        if (backward) experts_backward(b, back);
        if (forward) dispatch(f, i);
        if (backward) dispatch_backward(b, back);
        if (forward) experts(f, i);
        if (forward) combine(f, i);
        if (backward) attention_backward(b, back);
      }
      if (backward) embed_backward(b);
    }
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
  /// As where the host must know how many rows go.
  bool waits_for_counts = false;
  at::Tensor const& first_gradient() const { return embedding_.main_grad(); }

private:
  static at::Tensor leaf(at::Tensor const& root) { return root.detach().requires_grad_(); }
  static c10::Stream here() { return c10::cuda::getCurrentCUDAStream().unwrap(); }
  /// Made on another stream: its memory is not used again before this one is done with it.
  static void read(at::Tensor const& t) { t.record_stream(here()); }
  static void free_storage(at::Tensor& root) {
    root.storage().set_data_ptr_noswap(at::DataPtr(nullptr, root.device()));
  }

  /// Runs `task` on a stream, behind what ran of the microbatch before: one event a microbatch, as Megatron-LM has it.
  template <class Task> void on(cudaStream_t where, std::size_t m, Task const& task) {
    edges_[m].wait(where);
    auto const current = current_stream{}.enter(where);
    task();
    edges_[m].record(where);
  }

  void embed(std::size_t m) {
    on(compute_.get(), m, [&] { hidden_[m] = st::linear(input_, embedding_); });
    embedded_[m] = hidden_[m];
  }
  void embed_backward(std::size_t m) {
    on(compute_.get(), m, [&] {
      embedding_.accumulate(
          ag::grad({std::exchange(embedded_[m], {})}, {embedding_.leaf()}, {d_hidden_[m]})[0]);
      d_hidden_[m].reset();
    });
  }
  void head(std::size_t m) {
    on(compute_.get(), m, [&] {
      read(hidden_[m]);
      auto const x = leaf(std::exchange(hidden_[m], {}));
      auto const loss = (x * x).sum();
      d_hidden_[m] = ag::grad({loss}, {x})[0];
    });
  }
  void attention(std::size_t m, std::size_t i) {
    auto& s = state_[i][m];
    on(compute_.get(), m, [&] {
      read(hidden_[m]);
      s.hidden = leaf(hidden_[m]);
      hidden_[m].reset();
      s.made_tokens = st::linear(s.hidden, attention_[i]);
      s.made_residual = s.hidden * 2;
    });
  }
  void dispatch(std::size_t m, std::size_t i) {
    auto& s = state_[i][m];
    if (waits_for_counts) edges_[m].synchronize();
    on(comm_, m, [&] {
      s.tokens = leaf(s.made_tokens);
      s.made_arrived = at::cat({s.tokens, s.tokens});
      read(s.made_tokens);
      free_storage(s.made_tokens);
    });
  }
  void experts(std::size_t m, std::size_t i) {
    auto& s = state_[i][m];
    on(compute_.get(), m, [&] {
      read(s.made_arrived);
      s.arrived = leaf(s.made_arrived);
      auto const half = shape_.rows / 2;
      s.made_rows = st::expert_linear(s.arrived, {half, 2 * shape_.rows - half}, experts_[i]);
    });
  }
  void combine(std::size_t m, std::size_t i) {
    auto& s = state_[i][m];
    on(comm_, m, [&] {
      s.rows = leaf(s.made_rows);
      s.residual = leaf(s.made_residual);
      hidden_[m] = s.made_hidden = s.rows.view({2, shape_.rows, shape_.width}).sum(0) + s.residual;
      for (auto* each : {&s.made_rows, &s.made_residual}) {
        read(*each);
        free_storage(*each);
      }
    });
  }
  void combine_backward(std::size_t m, std::size_t i) {
    auto& s = state_[i][m];
    on(comm_, m, [&] {
      read(d_hidden_[m]);
      auto found = ag::grad({std::exchange(s.made_hidden, {})}, {s.rows, s.residual}, {d_hidden_[m]});
      // What aliases the gradient that came in would be freed with it.
      s.d_rows = found[0].clone();
      s.d_residual = found[1].clone();
      d_hidden_[m].reset();
      s.rows.reset();
      s.residual.reset();
    });
  }
  void experts_backward(std::size_t m, std::size_t i) {
    auto& s = state_[i][m];
    on(compute_.get(), m, [&] {
      read(s.d_rows);
      auto found = ag::grad({std::exchange(s.made_rows, {})}, {s.arrived, experts_[i].leaf()},
                            {std::exchange(s.d_rows, {})});
      s.d_arrived = found[0];
      experts_[i].accumulate(found[1]);
      s.arrived.reset();
    });
  }
  void dispatch_backward(std::size_t m, std::size_t i) {
    auto& s = state_[i][m];
    on(comm_, m, [&] {
      read(s.d_arrived);
      s.d_tokens =
          ag::grad({std::exchange(s.made_arrived, {})}, {s.tokens}, {std::exchange(s.d_arrived, {})})[0];
      s.tokens.reset();
    });
  }
  void attention_backward(std::size_t m, std::size_t i) {
    auto& s = state_[i][m];
    on(compute_.get(), m, [&] {
      read(s.d_tokens);
      read(s.d_residual);
      auto found = ag::grad({std::exchange(s.made_tokens, {}), std::exchange(s.made_residual, {})},
                            {s.hidden, attention_[i].leaf()},
                            {std::exchange(s.d_tokens, {}), std::exchange(s.d_residual, {})});
      d_hidden_[m] = found[0];
      attention_[i].accumulate(found[1]);
      s.hidden.reset();
    });
  }

  shape shape_;
  int microbatches_;
  cuda::stream compute_, own_comm_{cuda::urgency::high};
  cudaStream_t comm_;
  at::Tensor input_;
  st::parameter embedding_;
  std::vector<st::parameter> attention_, experts_;
  std::vector<std::vector<in_flight>> state_;
  std::vector<at::Tensor> hidden_, d_hidden_, embedded_;
  std::vector<cuda::edge> edges_;
};

/// Beyond what lives between steps: parameters and workspaces of libraries.
struct found {
  std::size_t allocated, reserved;
  double ms;
};

/// The peaks of many steps, from an empty cache.
template <class Step> found measure(Step const& step) {
  namespace allocator = c10::cuda::CUDACachingAllocator;
  std::vector<double> ms;
  step();
  allocator::emptyCache();
  allocator::resetPeakStats(0);
  auto const before = allocator::getDeviceStats(0).allocated_bytes[0].current;
  for (int i = 0; i < setting["steps"]; ++i) {
    auto const start = std::chrono::steady_clock::now();
    step();
    ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
  }
  auto const stats = allocator::getDeviceStats(0);
  std::sort(ms.begin(), ms.end());
  return {static_cast<std::size_t>(stats.allocated_bytes[0].peak - before),
          static_cast<std::size_t>(stats.reserved_bytes[0].peak - before), ms[ms.size() / 2]};
}

void run() {
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  shape const s{setting["rows"], setting["width"], at::kCUDA};
  int const layers = setting["layers"], microbatches = setting["microbatches"];

  at::Tensor on_one_stream, on_two;
  for (bool const two : {false, true}) {
    step_by_hand hand(s, layers, microbatches, two);
    hand.run();
    (two ? on_two : on_one_stream) = hand.first_gradient().clone();
  }
  std::printf("{");
  bench::print(setting);
  std::printf(",\n \"two_streams_by_hand_have_the_bits_of_one\": %s",
              at::equal(on_one_stream, on_two) ? "true" : "false");
  on_one_stream.reset();
  on_two.reset();
  auto const print = [](char const* name, found const& f) {
    std::printf(",\n \"%s\": {\"allocated_peak_mib\": %.1f, \"reserved_peak_mib\": %.1f, \"step_ms\": %.2f}",
                name, static_cast<double>(f.allocated) / (1 << 20),
                static_cast<double>(f.reserved) / (1 << 20), f.ms);
    std::fflush(stdout);
    c10::cuda::CUDACachingAllocator::emptyCache();
  };
  {
    step_by_hand hand(s, layers, microbatches, true);
    print("by_hand_with_record_stream", measure([&] { hand.run(); }));
  }
  {
    step_by_hand hand(s, layers, microbatches, true);
    hand.waits_for_counts = true;
    print("by_hand_where_the_host_waits_in_every_dispatch", measure([&] { hand.run(); }));
  }
  {
    layer_list<Network> network;
    fill(network, s, layers);
    st::stream_tensors tensors;
    cuda::lanes<current_stream> lanes;
    executor step(Schedule<Network, TwoStream1F1B>{}, backend{tensors, lanes}, network,
                  sizes{.microbatches = microbatches});
    print("through_the_executor", measure([&] { step(); }));
  }
  std::printf("\n}\n");
}

} // namespace

int main(int argc, char** argv) {
  stretto::torch_cuda::use_many_queues();
  stretto::torch_cuda::make_repeatable();
  return bench::run_on_gpu(setting, argc, argv, run);
}
