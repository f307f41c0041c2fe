/// Whole steps of the language model, ranks as threads: serial, overlapped, both without their communication, and the
/// communication alone, one after the other in every repeat. On one GPU rows go through host memory, on several they are
/// pushed. Arguments: NAME=NUMBER.

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

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace {

using namespace train_moe;
using bench::quantile;
namespace cuda = stretto::cuda;
using stretto::torch_cuda::current_stream;
using rank_lanes = cuda::lanes<current_stream, stretto::host::failure_board>;
using rank_executors = stretto::torch::stream_tensors;

// deterministic: torch's deterministic operations, as train_moe has them.
bench::settings setting{{"ranks", 2},    {"gpus", 1},    {"layers", 2},       {"hidden", 4096},
                        {"heads", 32},   {"ffn", 2048},  {"experts", 16},     {"top_k", 4},
                        {"shared", 0},   {"seq", 4096},  {"batch", 1},        {"microbatches", 8},
                        {"repeats", 20}, {"warm_up", 3}, {"deterministic", 0}};

template <template <class, class> class Exchange>
std::unique_ptr<rank_rows> rows_over(rank_communicator const& between) {
  return std::make_unique<device_rows<Exchange<rank_communicator, current_stream>>>(between,
                                                                                    /*measured=*/false);
}

/// Rows of other ranks, or nothing in their place: then what arrives is what lay there.
class optional_rows : public rank_rows {
public:
  explicit optional_rows(rank_communicator const& between)
      : rows_(setting["gpus"] > 1 ? rows_over<cuda::peer_exchange>(between)
                                  : rows_over<cuda::staged_exchange>(between)) {}
  int rank() const override { return rows_->rank(); }
  int ranks() const override { return rows_->ranks(); }
  void exchange_counts(int const* send_rows, int* counts) override {
    rows_->exchange_counts(send_rows, counts);
  }
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) override {
    if (moves) rows_->all_to_all(send, send_rows, receive, receive_rows, row_bytes);
    if (!notes) return;
    calls.push_back({{send_rows, send_rows + ranks()}, {receive_rows, receive_rows + ranks()}, row_bytes});
  }
  bool rows_on_device() const override { return true; }
  rank_rows& host() override { return rows_->host(); }
  double seconds() override { return 0; }

  struct call {
    std::vector<int> send_rows, receive_rows;
    std::size_t row_bytes;
  };
  bool moves = true, notes = false;
  std::vector<call> calls;

private:
  std::unique_ptr<rank_rows> rows_;
};

// The first three in the order of the steps.
enum variant {
  serial,
  two_stream,
  split_dw,
  split_dw_without_comm,
  serial_without_comm,
  comm_alone,
  variants
};
constexpr char const* names[] = {"serial",       "two_stream_1f1b",     "split_dw",
                                 "compute_only", "serial_compute_only", "comm_only"};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct rank_result {
  std::vector<double> seconds[variants];
  std::size_t bytes_to_peers = 0, calls = 0;
  stretto::busy_time busy, busy_without_comm;
};

class rank_bench {
public:
  rank_bench(model_config const& config, stretto::host::group& group, int rank)
      : rank_(rank), between_(group.communicator(rank, 1)), rows_(group.communicator(rank, 0)),
        exchange_(rows_, config.experts / group.ranks()),
        model_(config, exchange_, {{0, config.layers, true, true}}, all_gpus().expert_linear()),
        in_series_(stretto::proved_plan<stretto::SerialPipeline>(1, setting["microbatches"])),
        overlapped_(stretto::proved_plan<stretto::OneFOneBOverlapped>(1, setting["microbatches"])),
        board_(group.board()) {
    int const microbatches = setting["microbatches"];
    model_.step().resize(config.layers, microbatches, group.ranks());
    auto const tokens = static_cast<std::int64_t>(setting["batch"]) * config.sequence;
    auto const on_gpu = at::TensorOptions(torch_device(config.device));
    for (auto& each : model_.step().batches)
      each = {at::randint(256, {tokens}, on_gpu.dtype(at::kLong)),
              at::randint(256, {tokens}, on_gpu.dtype(at::kLong))};
    // The same choices in every variant, with equal chances: what is compared is not routing.
    choices_.resize(static_cast<std::size_t>(config.layers));
    std::size_t next = 0;
    model_.layers().for_each([&](auto& layer, int) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(layer)>,
                                   stretto::layer<MoeLayer<expert_exchange>>>) {
        auto& record = choices_[next++];
        record.replay = true;
        for (int m = 0; m < microbatches; ++m)
          record.ids.push_back(std::get<1>(at::rand({tokens, config.experts}, on_gpu).topk(config.top_k, 1)));
        layer.template at<0>().routes().replay(&record);
      }
    });
    for (auto const how : {policy::serial, policy::two_stream_1f1b, policy::split_dw})
      steps_.push_back(make(how, 0));
    cuda::check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  rank_result measure() {
    rank_result result;
    rows_.notes = true;
    steps_[serial]->run();
    rows_.notes = false;
    result.calls = rows_.calls.size();
    std::size_t largest_send = 0, largest_receive = 0;
    for (auto const& each : rows_.calls) {
      std::size_t sent = 0, received = 0;
      for (int r = 0; r < rows_.ranks(); ++r) {
        sent += static_cast<std::size_t>(each.send_rows[static_cast<std::size_t>(r)]) * each.row_bytes;
        received += static_cast<std::size_t>(each.receive_rows[static_cast<std::size_t>(r)]) * each.row_bytes;
        if (r != rank_)
          result.bytes_to_peers +=
              static_cast<std::size_t>(each.send_rows[static_cast<std::size_t>(r)]) * each.row_bytes;
      }
      largest_send = std::max(largest_send, sent);
      largest_receive = std::max(largest_receive, received);
    }
    auto const bytes = at::TensorOptions(at::kCUDA).dtype(at::kByte);
    auto const from = at::randint(256, {static_cast<std::int64_t>(largest_send)}, bytes);
    auto const to = at::empty({static_cast<std::int64_t>(largest_receive)}, bytes);
    rank_lanes alone({.rank = rank_}, {}, &board_);

    int const warm_up = setting["warm_up"];
    for (int repeat = -warm_up; repeat < setting["repeats"]; ++repeat)
      for (int which = 0; which < variants; ++which) {
        for (auto const& each : model_.parameters()) each.weight->zero_grad();
        cuda::check(cudaStreamSynchronize(current_stream{}.current()), "cudaStreamSynchronize");
        between_.barrier();
        auto const start = now();
        if (which == comm_alone) {
          for (auto const& each : rows_.calls)
            alone.run(stretto::lane::comm,
                      {stretto::dispatch, stretto::pass::forward, stretto::lane::comm, 0, 0}, [&] {
                        rows_.all_to_all(from.const_data_ptr(), each.send_rows.data(), to.mutable_data_ptr(),
                                         each.receive_rows.data(), each.row_bytes);
                      });
          alone.drain();
        } else {
          rows_.moves = which <= split_dw;
          steps_[which == serial_without_comm ? 0 : static_cast<std::size_t>(std::min<int>(which, split_dw))]
              ->run();
          rows_.moves = true;
        }
        between_.barrier();
        if (repeat >= 0) result.seconds[which].push_back(now() - start);
      }

    // Apart, since timing events cost time.
    auto const timed = make(policy::split_dw, spans_of_a_step(model_));
    for (int i = 0; i < 2; ++i) timed->run();
    result.busy = stretto::busy_of_rank(timed->timeline(), rank_);
    rows_.moves = false;
    for (int i = 0; i < 2; ++i) timed->run();
    result.busy_without_comm = stretto::busy_of_rank(timed->timeline(), rank_);
    rows_.moves = true;
    return result;
  }

private:
  std::unique_ptr<step_runner> make(policy how, std::size_t spans) {
    auto const& plan = how == policy::serial ? in_series_ : overlapped_;
    step_parts const parts{model_, plan, {rows_.ranks(), 1, rank_}, alone_, board_};
    return make_schedule_step<rank_executors, rank_lanes, stretto::no_peers<at::Tensor>>(
        how, parts, cuda::lane_options{.rank = rank_, .spans = spans}, current_stream{}, &board_);
  }

  int rank_;
  rank_communicator between_;
  optional_rows rows_;
  expert_exchange exchange_;
  language_model model_;
  stretto::plan in_series_, overlapped_;
  no_stage_peers alone_;
  stretto::host::failure_board& board_;
  std::vector<choice_record> choices_;
  std::vector<std::unique_ptr<step_runner>> steps_;
};

void run() {
  model_config config;
  config.layers = setting["layers"];
  config.hidden = setting["hidden"];
  config.heads = setting["heads"];
  config.ffn = setting["ffn"];
  config.experts = setting["experts"];
  config.top_k = setting["top_k"];
  config.shared = setting["shared"];
  config.sequence = setting["seq"];
  config.type = number_type::bf16;
  config.device = device_kind::cuda;

  stretto::host::group_options options;
  options.deadline = std::chrono::seconds(120);
  stretto::host::group group(setting["ranks"], options);
  group.add_domain();
  std::vector<rank_result> results(static_cast<std::size_t>(group.ranks()));
  group.run([&](int rank) {
    stretto::torch::use_one_thread();
    cuda::check(cudaSetDevice(rank % setting["gpus"]), "cudaSetDevice");
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    rank_bench bench(config, group, rank);
    results[static_cast<std::size_t>(rank)] = bench.measure();
  });

  // Ranks meet after every variant, so one rank's clock tells for all.
  auto const& first = results.front();
  double median[variants];
  std::printf("{\n  \"settings\": {");
  bench::print(setting);
  std::printf("},\n  \"bytes_to_peers_of_a_rank_and_step\": %zu,\n  \"all_to_alls_of_a_rank_and_step\": "
              "%zu,\n  \"ms\": {",
              first.bytes_to_peers, first.calls);
  char const* comma = "\n";
  for (int which = 0; which < variants; ++which) {
    median[which] = 1e3 * quantile(first.seconds[which], 0.5);
    std::printf("%s    \"%s\": {\"median\": %.3f, \"p10\": %.3f, \"p90\": %.3f, \"repeats\": %zu}",
                std::exchange(comma, ",\n"), names[which], median[which],
                1e3 * quantile(first.seconds[which], 0.1), 1e3 * quantile(first.seconds[which], 0.9),
                first.seconds[which].size());
  }
  double const bound = std::max(median[split_dw_without_comm], median[comm_alone]);
  std::printf("\n  },\n");
  for (auto const which : {serial, two_stream, split_dw}) {
    double const exposed = median[which] - median[split_dw_without_comm];
    double const allowed = median[serial] - median[split_dw_without_comm];
    std::printf("  \"%s\": {\"over_bound\": %.4f, \"exposed_ms\": %.3f, \"exposed_of_comm\": %.4f, "
                "\"of_serial\": %.4f, "
                "\"gained_of_what_comm_allows\": %.4f},\n",
                names[which], median[which] / bound, exposed, exposed / median[comm_alone],
                median[which] / median[serial], (median[serial] - median[which]) / allowed);
  }
  std::printf(
      "  \"comm_of_compute\": %.4f,\n  \"gb_per_s_to_peers_of_all_ranks\": %.2f,\n  \"of_timed_steps\": [",
      median[comm_alone] / median[split_dw_without_comm],
      static_cast<double>(first.bytes_to_peers) * group.ranks() / median[comm_alone] * 1e-6);
  comma = "\n";
  for (auto const& each : results)
    std::printf("%s    {\"length_us\": %.0f, \"compute_us\": %.0f, \"comm_us\": %.0f, \"exposed_us\": %.0f, "
                "\"compute_us_without_comm\": %.0f, \"dilation\": %.3f}",
                std::exchange(comma, ",\n"), each.busy.length_us, each.busy.compute_us,
                each.busy.communication_us, each.busy.exposed_us, each.busy_without_comm.compute_us,
                each.busy.compute_us / each.busy_without_comm.compute_us);
  std::printf("\n  ]\n}\n");
  std::fflush(stdout);
}

} // namespace

int main(int argc, char** argv) {
  stretto::torch_cuda::use_many_queues();
  return bench::run_on_gpu(setting, argc, argv, [] {
    if (setting["deterministic"]) stretto::torch_cuda::make_repeatable();
    run();
  });
}
