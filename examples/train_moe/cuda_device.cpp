#include "cuda_device.hpp"

#include "schedule_step.hpp"

#include <stretto/adapters/cublas.hpp>
#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/torch/stream_tensors.hpp>
#include <stretto/adapters/torch/threads.hpp>
#include <stretto/adapters/torch_cuda.hpp>

#include <c10/core/AutogradState.h>

#include <deque>
#include <string>

namespace train_moe {
namespace {

namespace cuda = stretto::cuda;
using stretto::torch_cuda::current_stream;

/// Rows of GPU memory; `measured` calls are timed on the GPU.
class staged_rows : public rank_rows {
public:
  staged_rows(rank_communicator between, bool measured) : host_(between), staged_(between), measured_(measured) {}

  int rank() const override { return staged_.rank(); }
  int ranks() const override { return staged_.ranks(); }
  void exchange_counts(int const* send_rows, int* counts) override { staged_.exchange_counts(send_rows, counts); }
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) override {
    auto const here = current_stream{}.current();
    if (measured_ && used_ == calls_.size()) calls_.emplace_back();
    if (measured_) calls_[used_].start.record(here);
    staged_.all_to_all(send, send_rows, receive, receive_rows, row_bytes);
    if (measured_) calls_[used_++].end.record(here);
  }
  bool rows_on_device() const override { return true; }
  rank_rows& host() override { return host_; }
  double seconds() override {
    for (std::size_t i = 0; i < used_; ++i) {
      calls_[i].end.synchronize();
      seconds_ += 1e-6 * cuda::microseconds_between(calls_[i].start, calls_[i].end);
    }
    used_ = 0;
    return seconds_;
  }

private:
  struct call {
    cuda::time_mark start, end;
  };
  timed_exchange<rank_communicator> host_;
  cuda::staged_exchange<rank_communicator, current_stream> staged_;
  bool measured_;
  std::deque<call> calls_;
  std::size_t used_ = 0;
  double seconds_ = 0;
};

/// Forward and backward run on the thread of their rank, which has the handles.
at::Tensor expert_linear_of_cublas(at::Tensor const& x, std::vector<std::int64_t> rows, stretto::torch::parameter& weight) {
  using op = stretto::torch_cuda::expert_products_op<stretto::cublas::stream_handles>;
  thread_local stretto::cublas::stream_handles handles;
  return stretto::torch::expert_linear(x, op{std::move(rows), &handles}, weight);
}

class one_gpu : public run_device {
public:
  void prepare() const override {
    stretto::torch_cuda::use_many_queues();
    stretto::torch_cuda::make_repeatable();
    int count = 0;
    auto const problem = cudaGetDeviceCount(&count);
    if (problem == cudaSuccess && count > 0) return;
    throw input_error(std::string("--device cuda: this machine has no GPU that CUDA can use") +
                      (problem == cudaSuccess ? "" : std::string(" (") + cudaGetErrorString(problem) + ")") +
                      "; say --device cpu");
  }
  void start_rank() const override {
    stretto::torch::use_one_thread();
    cuda::check(cudaSetDevice(0), "cudaSetDevice");
    // The engine has one thread for a GPU, and ranks that meet in their backwards would wait for each other on it.
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
  void finish() const override {
    cuda::check(cudaStreamSynchronize(current_stream{}.current()), "cudaStreamSynchronize");
  }
  std::unique_ptr<rank_rows> make_rows(policy how, rank_communicator between) const override {
    return std::make_unique<staged_rows>(between, how == policy::autograd);
  }
  expert_linear_function expert_linear() const override { return expert_linear_of_cublas; }
  /// There is one pipeline rank: messages between stages have no way from GPU memory yet.
  std::unique_ptr<step_runner> make_step(policy how, step_parts const& of) const override {
    if (how == policy::autograd) return make_autograd_step(of);
    using tensors = stretto::torch::stream_tensors;
    using lanes = cuda::lanes<current_stream, stretto::host::failure_board>;
    return make_schedule_step<tensors, lanes, stretto::no_peers<at::Tensor>>(
        how, of, cuda::lane_options{.rank = of.place.rank, .spans = spans_of_a_step(of.model)}, current_stream{}, &of.board);
  }
  std::size_t live_bytes() const override { return stretto::torch_cuda::live_bytes(); }
  std::size_t peak_bytes() const override { return stretto::torch_cuda::peak_bytes(); }
  void restart_peak() const override { stretto::torch_cuda::restart_peak(); }
};

}  // namespace

run_device const& first_gpu() {
  static one_gpu const gpu;
  return gpu;
}

}  // namespace train_moe
