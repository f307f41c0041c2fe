#include "training.hpp"
#include "under_a_tool.hpp"

#include <train_moe/steps/graph_step.hpp>
#include <train_moe/steps/schedule_step.hpp>

#include <stretto/adapters/cuda.hpp>
#include <stretto/adapters/torch/stream_tensors.hpp>
#include <stretto/adapters/torch_cuda.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace test;
using namespace train_moe;
namespace cuda = stretto::cuda;
using stretto::torch_cuda::current_stream;

namespace {

/// Large enough for ops of both lanes and both ranks to run at the same time.
options larger() {
  auto o = small();
  o.steps = times(4, 3);
  if (under_a_tool()) return o;
  o.batch = 8;
  o.microbatches = 4;
  o.model.hidden = 256;
  o.model.ffn = 256;
  o.model.sequence = 128;
  return o;
}

void check_policies(options const& o, corpus const& text) {
  auto const yardstick = run(o, policy::autograd, text);
  REQUIRE(yardstick.losses.size() == static_cast<std::size_t>(o.steps));
  for (auto const each : yardstick.losses) REQUIRE(std::isfinite(each));
  for (auto const how : {policy::serial, policy::two_stream_1f1b, policy::split_dw}) {
    if (is_left_out(how)) continue;
    CAPTURE(name_of(how));
    CHECK(same(run(o, how, text), yardstick));
  }
}

/// Before and after every op, takes what the lane has free and writes NaN over it: what went back too early is no number
/// for whoever still reads it.
class churning_tensors : public stretto::torch::stream_tensors {
  using base = stretto::torch::stream_tensors;
  using request = stretto::gradient_request<at::Tensor>;

  struct churn {
    churn() { take(); }
    ~churn() { take(); }
    static void take() {
      at::NoGradGuard const no_graph;
      std::vector<at::Tensor> taken;
      auto const options = at::TensorOptions(at::kCUDA).dtype(at::kFloat);
      for (std::int64_t numbers = std::int64_t{1} << 20; numbers >= 128; numbers /= times(2, 16))
        for (int i = 0; i < 2; ++i)
          taken.push_back(at::full({numbers}, std::numeric_limits<double>::quiet_NaN(), options));
    }
  };
  struct churned_scope {
    churn around;
    stretto::torch::node_scope inner;
  };

public:
  churned_scope forward_scope(context& node) const {
    return {{}, {node, stretto::torch::node_stage::forward}};
  }
  template <class... Phases> void backward(context& node, request const& r, Phases&... phases) const {
    churn const around;
    base::backward(node, r, phases...);
  }
  template <class... Phases> void backward_input(context& node, request const& r, Phases&... phases) const {
    churn const around;
    base::backward_input(node, r, phases...);
  }
  template <class... Phases> void backward_weight(context& node, Phases&... phases) const {
    churn const around;
    base::backward_weight(node, phases...);
  }
};
static_assert(stretto::autograd_tensor_adapter<churning_tensors>);

/// Now and then an op starts late, so that what does not wait for it is early.
class shaken_lanes : public cuda::lanes<current_stream, stretto::host::failure_board> {
  using base = cuda::lanes<current_stream, stretto::host::failure_board>;

public:
  shaken_lanes(cuda::lane_options const& options, stretto::host::failure_board* board)
      : base(options, {}, board), random_(static_cast<unsigned>(options.rank + 1)) {
    cuda::check(cudaMalloc(&scratch_, bytes), "cudaMalloc");
  }
  ~shaken_lanes() { static_cast<void>(cudaFree(scratch_)); }
  shaken_lanes(shaken_lanes const&) = delete;
  shaken_lanes& operator=(shaken_lanes const&) = delete;

  template <class Task> void run(stretto::lane on, stretto::op_label const& label, Task task) {
    // Longer than the host needs to issue an op.
    if (random_() % 3 == 0)
      for (int i = 0; i < 8; ++i)
        cuda::check(cudaMemsetAsync(scratch_, 0, bytes, this->stream(on)), "cudaMemsetAsync");
    base::run(on, label, task);
  }
  void wait(stretto::lane on, event const& mark) {
    if (waits) base::wait(on, mark);
  }
  static inline bool waits = true;

private:
  std::size_t const bytes = std::size_t{1} << times(30, 20);
  void* scratch_ = nullptr;
  std::mt19937 random_;
};

/// The GPU with tensors and lanes as hostile as the rules of adapters allow; without waits, more than that.
class hostile_gpu : public run_device {
public:
  explicit hostile_gpu(bool waits) : real_(std::exchange(cuda_device(), this)) {
    shaken_lanes::waits = waits;
  }
  ~hostile_gpu() override { cuda_device() = real_; }
  hostile_gpu(hostile_gpu const&) = delete;
  hostile_gpu& operator=(hostile_gpu const&) = delete;

  void prepare(options const& o, std::optional<rank_place> const& place) const override {
    real_->prepare(o, place);
  }
  void start_rank(options const& o, rank_place const& place) const override { real_->start_rank(o, place); }
  void finish() const override { real_->finish(); }
  std::unique_ptr<rank_transport> make_transport(transport_parts const& of) const override {
    return real_->make_transport(of);
  }
  expert_linears expert_linear() const override { return real_->expert_linear(); }
  std::unique_ptr<step_runner> make_step(policy how, step_parts const& of) const override {
    auto step = make_schedule_step<churning_tensors, shaken_lanes, stretto::no_peers<at::Tensor>>(
        how, of, cuda::lane_options{.rank = of.place.rank}, &of.board);
    if (of.graph) return make_graph_step(std::move(step), of);
    return step;
  }
  double now_us() const override { return real_->now_us(); }
  std::size_t live_bytes() const override { return real_->live_bytes(); }
  std::size_t peak_bytes() const override { return real_->peak_bytes(); }
  void restart_peak() const override { real_->restart_peak(); }

private:
  run_device const* real_;
};

} // namespace

TEST_CASE("on a GPU every policy gives the bits of ordinary autograd", "[gpu]") {
  text_file const file;
  auto o = small();
  o.model.type = GENERATE(number_type::f32, number_type::bf16);
  o.ep = GENERATE(1, 2);
  o.microbatches = GENERATE(1, 2, 3, 8);
  // The kernels are the same in all of them.
  if (under_a_tool() && (o.ep == 1 || o.microbatches != 2)) return;
  CAPTURE(o.ep, o.microbatches, o.model.type);
  check_policies(o, corpus(file.path(), o.model.sequence));
}

TEST_CASE("the same with experts of other numbers", "[gpu]") {
  text_file const file;
  auto o = small();
  SECTION("one expert a rank") { o.model.experts = 2; }
  SECTION("all experts") { o.model.top_k = 4; }
  SECTION("more experts than rows in places") { o.model.experts = 32, o.model.sequence = 4, o.batch = 1; }
  check_policies(o, corpus(file.path(), o.model.sequence));
}

TEST_CASE("the same with one choice and no shared expert, in double precision, without an auxiliary loss",
          "[gpu]") {
  text_file const file;
  auto o = small();
  SECTION("top 1, no shared expert") { o.model.top_k = 1, o.model.shared = 0; }
  SECTION("double") { o.model.type = number_type::f64; }
  SECTION("no auxiliary loss") { o.model.auxiliary = 0; }
  check_policies(o, corpus(file.path(), o.model.sequence));
}

TEST_CASE("with slots of a fixed number every policy gives the bits of ordinary autograd on a GPU", "[gpu]") {
  text_file const file;
  auto o = small();
  o.model.type = GENERATE(number_type::f32, number_type::bf16);
  o.ep = GENERATE(1, 2);
  o.capacity = 2;
  if (under_a_tool() && o.ep == 1) return;
  CAPTURE(o.ep, o.model.type);
  check_policies(o, corpus(file.path(), o.model.sequence));
}

TEST_CASE("a captured step has new tokens and routing in every replay and gives the bits of ordinary ones",
          "[gpu]") {
  text_file const file;
  auto o = small();
  o.steps = times(5, 3);
  o.capacity = 2;
  o.ep = 1;
  SECTION("one rank") { o.model.type = GENERATE(number_type::f32, number_type::bf16); }
  SECTION("two ranks") { o.ep = 2, o.transport = GENERATE(transport_kind::staged, transport_kind::peer); }
  SECTION("four ranks, narrow numbers") { o.ep = 4, o.model.type = number_type::bf16; }
  if (under_a_tool() && (o.ep == 4 || (o.ep == 1 && o.model.type == number_type::f32))) return;
  CAPTURE(o.ep, o.transport, o.model.type);
  corpus const text(file.path(), o.model.sequence);
  auto const ordinary = run(o, policy::split_dw, text);
  o.graph = true;
  for (auto const how : all_policies) {
    if (is_left_out(how)) continue;
    CAPTURE(name_of(how));
    CHECK(same(run(o, how, text), ordinary));
  }
}

TEST_CASE("late ops and memory that is written over change no bit of a captured step", "[gpu]") {
  text_file const file;
  auto o = larger();
  o.ep = GENERATE(1, 2);
  o.capacity = 2;
  if (under_a_tool() && o.ep == 1) return;
  corpus const text(file.path(), o.model.sequence);
  auto const ordinary = run(o, policy::serial, text);
  hostile_gpu const hostile(true);
  o.graph = true;
  CHECK(same(run(o, policy::split_dw, text), ordinary));
}

TEST_CASE("runs in several threads capture and replay their steps on one GPU at the same time", "[gpu]") {
  text_file const file;
  auto o = small();
  o.ep = 1;
  o.steps = times(8, 3);
  o.capacity = 2;
  corpus const text(file.path(), o.model.sequence);
  auto const ordinary = run(o, policy::split_dw, text);
  o.graph = true;
  prepare(o);
  constexpr std::size_t count = 2;
  std::vector<run_result> found(count);
  std::vector<std::string> problems(count);
  std::vector<std::thread> threads;
  for (std::size_t which = 0; which < count; ++which)
    threads.emplace_back([&, which] {
      try {
        found[which] = train(o, policy::split_dw, text, [](progress const&) {});
      } catch (std::exception const& problem) {
        problems[which] = problem.what();
      }
    });
  for (auto& each : threads) each.join();
  for (std::size_t which = 0; which < count; ++which) {
    CHECK(problems[which] == "");
    CHECK(same(found[which], ordinary));
  }
}

TEST_CASE("choices without a slot end a run whose steps are replayed, with the sentence of ordinary ones",
          "[gpu]") {
  text_file const file;
  auto o = small();
  // Two ranks have one graph.
  o.ep = GENERATE(1, 2);
  if (under_a_tool() && o.ep == 1) return;
  o.microbatches = o.model.layers = 3;
  o.steps = 12;
  corpus const text(file.path(), o.model.sequence);
  // Whichever of the ranks it is that ends the others.
  auto const sentence_on = [&](device_kind device) -> std::string {
    o.model.device = device;
    try {
      run(o, policy::split_dw, text);
    } catch (std::exception const& problem) {
      std::string const told = problem.what();
      return told.substr((std::min)(told.size(), told.find("step ")));
    }
    return {};
  };
  auto const is_late = [](std::string const& told) {
    return told.find("found no slot") != std::string::npos && told.find("step 1,") == std::string::npos &&
           told.find("step 2,") == std::string::npos && told.find("step 3,") == std::string::npos;
  };
  // As many slots as last for three steps, but not for all: looked for on the CPU, which mostly chooses as the GPU does.
  std::string ordinary;
  for (o.model.seed = 1; o.model.seed < 4 && ordinary.empty(); ++o.model.seed)
    for (o.capacity = 1; o.capacity < 2; o.capacity += 1.0 / 24) {
      auto const likely = sentence_on(device_kind::cpu);
      if (likely.empty()) break;
      if (!is_late(likely)) continue;
      ordinary = sentence_on(device_kind::cuda);
      if (is_late(ordinary)) break;
      ordinary.clear();
    }
  --o.model.seed;
  REQUIRE(is_late(ordinary));
  o.graph = true;
  CHECK(sentence_on(device_kind::cuda) == ordinary);
}

TEST_CASE("a GPU learns what a CPU learns", "[gpu]") {
  text_file const file;
  auto o = small();
  o.steps = times(10, 2);
  corpus const text(file.path(), o.model.sequence);
  auto const gpu = run(o, policy::split_dw, text);
  o.model.device = device_kind::cpu;
  auto const cpu = run(o, policy::split_dw, text);
  for (std::size_t i = 0; i < gpu.losses.size(); ++i) CHECK(std::abs(gpu.losses[i] - cpu.losses[i]) < 1e-3);
  CHECK(std::abs(gpu.held_out_loss - cpu.held_out_loss) < 1e-3);
}

TEST_CASE("late ops and memory that is written over as soon as it is free change no bit",
          "[gpu][megatron-04][building-blocks-02][building-blocks-04]") {
  text_file const file;
  auto o = larger();
  o.model.type = GENERATE(number_type::f32, number_type::bf16);
  if (under_a_tool() && o.model.type == number_type::f32) return;
  corpus const text(file.path(), o.model.sequence);
  auto const yardstick = run(o, policy::serial, text);
  hostile_gpu const hostile(true);
  for (auto const how : {policy::serial, policy::two_stream_1f1b, policy::split_dw}) {
    if (is_left_out(how)) continue;
    CAPTURE(name_of(how));
    CHECK(same(run(o, how, text), yardstick));
  }
}

TEST_CASE("lanes that forget to wait do not get away with it", "[gpu]") {
  text_file const file;
  auto const o = larger();
  corpus const text(file.path(), o.model.sequence);
  auto const yardstick = run(o, policy::serial, text);
  hostile_gpu const broken(false);
  bool shows = false;
  try {
    shows = !same(run(o, policy::split_dw, text), yardstick);
  } catch (std::exception const&) {
    shows = true;
  }
  CHECK(shows);
}
