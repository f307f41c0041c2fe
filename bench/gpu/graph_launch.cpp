/// What the host pays for a step of the language model that is one CUDA graph, launched by the host and by the GPU, beside the
/// same step issued, for several numbers of layers in turns. One rank, the split schedule, shapes so small that the host is what costs.
/// Arguments: NAME=NUMBER. Prints JSON.

#include "program.hpp"
#include "spread.hpp"

#include <train_moe/gpu/cuda_device.hpp>
#include <train_moe/ranks/device_rows.hpp>
#include <train_moe/ranks/rank_types.hpp>
#include <train_moe/steps/schedule_step.hpp>

#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/host/group.hpp>
#include <stretto/adapters/torch/stream_tensors.hpp>
#include <stretto/adapters/torch/threads.hpp>
#include <stretto/adapters/torch_cuda.hpp>
#include <stretto/plan/error.hpp>

#include <c10/core/AutogradState.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace train_moe;
using bench::quantile;
namespace cuda = stretto::cuda;
using stretto::torch_cuda::current_stream;
using tensors = stretto::torch::stream_tensors;
using lanes = cuda::lanes<current_stream, stretto::host::failure_board>;
using rows = device_rows<cuda::staged_exchange<rank_communicator, current_stream>>;

bench::settings setting{{"microbatches", 2}, {"repeats", 100}, {"warm_up", 5}, {"batch", 1}, {"seq", 128},
                        {"hidden", 256},     {"ffn", 256},     {"experts", 8}, {"top_k", 2}};
constexpr int layer_counts[] = {4, 8, 16, 32};

double microseconds() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

class one_step {
public:
  one_step(int layers, stretto::host::group& group)
      : config_(config_of(layers)), rows_(group.communicator(0), false),
        exchange_(rows_, config_.experts, slots()),
        model_(config_, exchange_, {{0, layers, true, true}}, all_gpus().expert_linear()),
        plan_(stretto::proved_plan<stretto::OneFOneBOverlapped>(1, setting["microbatches"])),
        board_(group.board()) {
    model_.step().resize(layers, setting["microbatches"], 1);
    model_.step().use_slots(slots(), torch_device(config_.device));
    auto const numbers = at::TensorOptions(torch_device(config_.device)).dtype(at::kLong);
    for (auto& each : model_.step().batches)
      each = {at::randint(256, {tokens()}, numbers), at::randint(256, {tokens()}, numbers)};
    step_parts const parts{model_, plan_, {1, 1, 0}, alone_, board_};
    step_ = std::make_unique<step>(parts, cuda::lane_options{}, current_stream{}, &board_);
    graph_.warm([this] { step_->run(); });
    graph_.capture([this] { step_->run(); });
    by_gpu_.launch_by(cuda::graph_launch::by_gpu);
    by_gpu_.warm([this] { step_->run(); });
    by_gpu_.capture([this] { step_->run(); });
  }

  void measure(bool counts) {
    for (auto const& each : model_.parameters()) each.weight->zero_grad();
    model_.step().slot_use.zero_();
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    auto const time = [&](graph& of, std::vector<double>& launches, std::vector<double>& replays) {
      double const start = microseconds();
      of.replay();
      double const launched = microseconds();
      of.wait();
      double const replayed = microseconds();
      if (!counts) return;
      launches.push_back(launched - start);
      replays.push_back(replayed - start);
    };
    time(graph_, launch, replay);
    time(by_gpu_, gpu_launch, gpu_replay);
    double const start = microseconds();
    step_->run();
    if (counts) eager.push_back(microseconds() - start);
  }
  std::size_t nodes() const { return graph_.nodes(); }
  int layers() const { return config_.layers; }
  bool is_by_gpu() const { return by_gpu_.launched_by() == cuda::graph_launch::by_gpu; }
  std::vector<double> launch, replay, gpu_launch, gpu_replay, eager;

private:
  using step = schedule_step<SplitStep, tensors, lanes, stretto::no_peers<at::Tensor>>;

  static model_config config_of(int layers) {
    model_config config;
    config.layers = layers;
    config.hidden = setting["hidden"];
    config.ffn = setting["ffn"];
    config.experts = setting["experts"];
    config.top_k = setting["top_k"];
    config.sequence = setting["seq"];
    config.type = number_type::bf16;
    config.device = device_kind::cuda;
    return config;
  }
  static int tokens() { return setting["batch"] * setting["seq"]; }
  static int slots() { return tokens(); }

  model_config config_;
  rows rows_;
  expert_exchange exchange_;
  language_model model_;
  stretto::plan plan_;
  no_stage_peers alone_;
  stretto::host::failure_board& board_;
  std::unique_ptr<step> step_;
  using graph = cuda::step_graph<current_stream, stretto::torch_cuda::graph_memory>;
  graph graph_, by_gpu_;
};

void print(char const* name, std::vector<double> const& values, char const* behind) {
  std::printf("\"%s\": [%.2f, %.2f, %.2f]%s", name, quantile(values, 0.1), quantile(values, 0.5),
              quantile(values, 0.9), behind);
}

void run() {
  cudaDeviceProp device{};
  cuda::check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::vector<std::unique_ptr<one_step>> steps;
  stretto::host::group group(1);
  group.run([&](int) {
    stretto::torch::use_one_thread();
    cuda::check(cudaSetDevice(0), "cudaSetDevice");
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    for (int const layers : layer_counts) steps.push_back(std::make_unique<one_step>(layers, group));
    for (int repeat = -setting["warm_up"]; repeat < setting["repeats"]; ++repeat)
      for (auto& each : steps) each->measure(repeat >= 0);
    std::printf("{\n  \"gpu\": \"%s\",\n  \"settings\": {", device.name);
    bench::print(setting);
    std::printf("},\n  \"unit\": \"us on the host: 10 %%, median, 90 %%\",\n  \"steps\": [\n");
    for (auto const& each : steps) {
      std::printf("    {\"layers\": %d, \"nodes\": %zu, ", each->layers(), each->nodes());
      print("launch", each->launch, ", ");
      print("replay", each->replay, ", ");
      std::printf("\"by_gpu\": %s, ", each->is_by_gpu() ? "true" : "false");
      print("gpu_launch", each->gpu_launch, ", ");
      print("gpu_replay", each->gpu_replay, ", ");
      print("eager", each->eager, ", ");
      // What a forward and a backward of one layer take, where the host is the longer one.
      std::printf("\"eager_of_a_pair\": %.1f}%s\n",
                  quantile(each->eager, 0.5) / (each->layers() * setting["microbatches"]),
                  each == steps.back() ? "" : ",");
    }
    std::printf("  ],\n  \"launch_of_32_to_4\": %.3f, \"gpu_launch_of_32_to_4\": %.3f\n}\n",
                quantile(steps.back()->launch, 0.5) / quantile(steps.front()->launch, 0.5),
                quantile(steps.back()->gpu_launch, 0.5) / quantile(steps.front()->gpu_launch, 0.5));
    // On the thread whose device and streams they have.
    steps.clear();
  });
}

} // namespace

int main(int argc, char** argv) {
  stretto::torch_cuda::use_many_queues();
  stretto::torch_cuda::make_repeatable();
  return bench::run_on_gpu(setting, argc, argv, run);
}
