#include "cuda_device.hpp"

#include "../forecast.hpp"
#include "../ranks/cuda_transports.hpp"
#include "../steps/graph_step.hpp"
#include "../steps/schedule_step.hpp"
#include "gpu_attention.hpp"
#include "use_kernels.hpp"

#include "../../shared/words.hpp"

#include <stretto/adapters/cublas.hpp>
#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/torch/stream_tensors.hpp>
#include <stretto/adapters/torch/threads.hpp>
#include <stretto/adapters/torch_cuda.hpp>

#include <ATen/cuda/CUDAContext.h>
#include <c10/core/AutogradState.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

namespace train_moe {
namespace {

namespace cuda = stretto::cuda;
using stretto::torch_cuda::current_stream;

/// Of this thread: that of a rank, which issues its forward and backward.
stretto::cublas::stream_handles& expert_handles() {
  thread_local stretto::cublas::stream_handles handles;
  return handles;
}

stretto::torch_cuda::expert_products_op<stretto::cublas::stream_handles>
expert_op_of_cublas(std::vector<std::int64_t> rows) {
  return {std::move(rows), &expert_handles()};
}

int visible_gpus() {
  auto const here = cuda::look_at_machine();
  if (auto const why = cuda::why_not_ready(here); !why.empty())
    throw input_error("--device cuda: " + why + "; or say --device cpu");
  return here.gpus;
}

/// What torchrun, or examples/launch.sh, says of the ranks on this machine.
int of_this_machine(char const* name, int least, int otherwise) {
  char const* const text = std::getenv(name);
  if (!text) return otherwise;
  int value = 0;
  auto const [end, problem] = std::from_chars(text, text + std::strlen(text), value);
  if (problem == std::errc{} && *end == 0 && value >= least) return value;
  throw input_error(std::string(name) + " must be a whole number of at least " + std::to_string(least) +
                    ", not '" + examples::shown(text) +
                    "'; unset it, or start the ranks by torchrun or examples/launch.sh");
}
int local_rank(rank_place const& place) { return of_this_machine("LOCAL_RANK", 0, place.rank); }

/// Refuses ranks that have no room on their GPU, and warns of queues that make their lanes wait.
void check_room(options const& o, int gpu, int ranks_of_gpu) {
  cuda::check(cudaSetDevice(gpu), "cudaSetDevice");
  std::size_t free = 0, all = 0;
  cuda::check(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  require_memory(o, free, ranks_of_gpu);
  // Of a rank: two lanes, two streams of its rows, and those of its messages.
  int const streams = ranks_of_gpu * (o.pp > 1 ? 8 : 4);
  auto const slow = cuda::why_lanes_serialize(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), streams);
  if (!slow.empty()) std::fprintf(stderr, "train_moe: warning: %s\n", slow.c_str());
}

class gpus : public run_device {
public:
  void prepare(options const& o, std::optional<rank_place> const& place) const override {
    stretto::torch_cuda::use_many_queues();
    stretto::torch_cuda::make_repeatable();
    use_kernels();
    use_gpu_attention(o.repeatable ? attention_sums::repeatable : attention_sums::any_order);
    int const count = visible_gpus(), ranks = o.ep * o.pp;
    are_processes_ = place.has_value();
    kind_ = transport_of(o, are_processes_);
    if ((kind_ == transport_kind::staged || kind_ == transport_kind::none) && place)
      throw input_error(std::string("--comm ") + name_of(kind_) +
                        " is for ranks that are threads; say --comm nccl, or unset RANK and WORLD_SIZE");
    if (kind_ == transport_kind::nccl && !has_nccl())
      throw input_error("--comm nccl: this build has no NCCL; build where nccl.h and libnccl are");
    if (kind_ == transport_kind::nccl && !place && ranks > count)
      throw input_error("--comm nccl takes one GPU for each rank that is a thread, and of " +
                        std::to_string(ranks) + " ranks " + std::to_string(ranks - count) +
                        " have none; say --comm staged, or start processes that share a GPU: sh "
                        "examples/launch.sh --share-gpu");
    if (kind_ == transport_kind::peer && place && o.graph && ranks > count)
      throw input_error("--graph over --comm peer takes a GPU for each rank that is a process, and of " +
                        std::to_string(ranks) + " ranks " + std::to_string(ranks - count) +
                        " have none: on one GPU graphs that wait for each other get stuck; leave out "
                        "--graph, or unset RANK and "
                        "WORLD_SIZE, so that ranks are threads with one graph");
    int const ranks_here = place ? of_this_machine("LOCAL_WORLD_SIZE", 1, ranks) : ranks;
    check_room(o, place ? local_rank(*place) % count : 0,
               kind_ == transport_kind::staged ? ranks : (ranks_here + count - 1) / count);
  }
  void start_rank(options const&, rank_place const& place) const override {
    stretto::torch::use_one_thread();
    int const gpu = kind_ == transport_kind::staged
                        ? 0
                        : (are_processes_ ? local_rank(place) : place.rank) % visible_gpus();
    cuda::check(cudaSetDevice(gpu), "cudaSetDevice");
    // The engine has one thread for a GPU, and ranks that meet in their backwards would wait for each other on it.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  void finish() const override {
    cuda::check(cudaStreamSynchronize(current_stream{}.current()), "cudaStreamSynchronize");
  }
  std::unique_ptr<rank_transport> make_transport(transport_parts const& of) const override {
    switch (kind_) {
    case transport_kind::nccl:
      return make_nccl_transport(of);
    case transport_kind::peer:
      return are_processes_ ? make_process_transport(of) : make_peer_transport(of);
    case transport_kind::none:
      return make_kept_transport(of);
    default:
      return make_staged_transport(of);
    }
  }
  expert_linears expert_linear() const override { return expert_linears_by<expert_op_of_cublas>(); }
  std::unique_ptr<step_runner> make_step(policy how, step_parts const& of) const override {
    auto step = how == policy::autograd ? make_autograd_step(of) : make_lanes_step(how, of);
    if (of.graph) return make_graph_step(std::move(step), of);
    return step;
  }
  double now_us() const override { return cuda::time_base::now_us(); }
  std::size_t live_bytes() const override { return stretto::torch_cuda::live_bytes(); }
  std::size_t peak_bytes() const override { return stretto::torch_cuda::peak_bytes(); }
  void restart_peak() const override { stretto::torch_cuda::restart_peak(); }

private:
  static std::unique_ptr<step_runner> make_lanes_step(policy how, step_parts const& of) {
    using tensors = stretto::torch::stream_tensors;
    using lanes = cuda::lanes<current_stream, stretto::host::failure_board>;
    cuda::lane_options const options{.rank = of.place.rank,
                                     .peers = of.place.pp > 1,
                                     .spans = of.timed ? spans_of_a_step(of.model) : 0,
                                     .ranges = true};
    return make_schedule_step<tensors, lanes, stage_peers>(how, of, options, current_stream{}, &of.board);
  }

  // Of the run that was prepared last.
  mutable transport_kind kind_ = transport_kind::staged;
  mutable bool are_processes_ = false;
};

} // namespace

void use_multiprocessors(int count) {
  expert_handles().use_multiprocessors(count);
  // torch's handle of this thread, which its own products take.
  if (cublasSetSmCountTarget(at::cuda::getCurrentCUDABlasHandle(), count) != CUBLAS_STATUS_SUCCESS)
    throw std::runtime_error("cublasSetSmCountTarget");
}

run_device const& all_gpus() {
  static gpus const all;
  return all;
}

} // namespace train_moe
