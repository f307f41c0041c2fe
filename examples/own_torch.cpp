/// Phases with torch's tensors: forward alone, autograd does the rest. A mixture-of-experts model learns a permutation, once
/// by each of two schedules. Weights are `torch::parameter`s: ordinary operations use them by `value()`, functions such as
/// `linear` and `expert_linear` take them as they are, and their gradients are in `main_grad()`.
#include <stretto/adapters/host.hpp>
#include <stretto/adapters/torch.hpp>
#include <stretto/stretto.hpp>

#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <vector>

namespace st = stretto;

namespace {

constexpr int symbols = 16, width = 24, experts = 4, layers_of_experts = 2, microbatches = 4, steps = 60;

struct hidden : st::value {};
struct tokens : st::value {};
struct gate : st::value {};
struct residual : st::value {};
struct expert_in : st::value {};
struct expert_out : st::value {};
struct loss : st::objective {}; // what backward starts from
struct routing : st::metadata {
  struct type {
    at::Tensor order; // the rows by expert
    std::vector<std::int64_t> rows; // how many for each
  };
};

using weights = std::deque<st::torch::parameter>; // graphs point at them, so they must not move
st::torch::parameter* add(weights& all, char const* name, at::IntArrayRef sizes) {
  return &all.emplace_back(name, at::randn(sizes).mul_(0.2));
}

at::Tensor inputs(int microbatch) { return at::arange(symbols).roll({microbatch}); }

struct Embed : st::Phase<st::attn> {
  using writes = st::values<hidden>;
  st::torch::parameter* table;
  explicit Embed(weights& all) : table(add(all, "table", {symbols, width})) {}
  void forward(auto& io) { io[hidden{}] = table->value().index_select(0, inputs(io.microbatch())); }
};

struct Route : st::Phase<st::attn> {
  using reads = st::values<hidden>;
  using writes = st::values<tokens, gate, residual, routing>;
  st::torch::parameter *mix, *router;
  explicit Route(weights& all)
      : mix(add(all, "mix", {width, width})), router(add(all, "router", {width, experts})) {}
  void forward(auto& io) {
    io[tokens{}] = at::tanh(st::torch::linear(io[hidden{}], *mix));
    io[residual{}] = io[hidden{}] * 1;
    auto const [probability, expert] = io[tokens{}].matmul(router->value()).softmax(1).max(1, true);
    io[gate{}] = probability;
    at::Tensor const chosen = expert.flatten(), count = chosen.bincount({}, experts);
    auto const* const first = count.const_data_ptr<std::int64_t>();
    io[routing{}] = {chosen.argsort(true, 0), {first, first + experts}};
  }
};
struct Dispatch : st::Phase<st::dispatch> {
  using reads = st::values<tokens, routing>;
  using writes = st::values<expert_in>;
  void forward(auto& io) { io[expert_in{}] = io[tokens{}].index_select(0, io[routing{}].order); }
};
struct Experts : st::Phase<st::mlp> {
  using reads = st::values<expert_in, routing>;
  using writes = st::values<expert_out>;
  st::torch::parameter* weight;
  explicit Experts(weights& all) : weight(add(all, "experts", {experts, width, width})) {}
  void forward(auto& io) {
    io[expert_out{}] = st::torch::expert_linear(io[expert_in{}], io[routing{}].rows, *weight).tanh();
  }
};
struct Combine : st::Phase<st::combine> {
  using reads = st::values<expert_out, gate, residual, routing>;
  using writes = st::values<hidden>;
  void forward(auto& io) {
    at::Tensor const place = io[routing{}].order.argsort();
    io[hidden{}] = io[residual{}] + io[gate{}] * io[expert_out{}].index_select(0, place);
  }
};

struct Head : st::Phase<st::mlp> {
  using reads = st::values<hidden>;
  using writes = st::values<loss>;
  st::torch::parameter* weight;
  std::vector<double>* losses;
  Head(weights& all, std::vector<double>& into) : weight(add(all, "head", {width, symbols})), losses(&into) {}
  void forward(auto& io) {
    at::Tensor const target = (inputs(io.microbatch()) * 5 + 3).remainder(symbols);
    io[loss{}] = at::cross_entropy_loss(st::torch::linear(io[hidden{}], *weight), target) / microbatches;
    losses->at(static_cast<std::size_t>(io.microbatch())) = io[loss{}].template item<double>();
  }
};

// An embedding and a head are layers as others are.
struct First : st::Block<Embed> {};
struct Layer : st::Block<Route, st::Detach, Dispatch, st::Detach, Experts, st::Detach, Combine> {};
struct Last : st::Block<Head> {};
struct Model : st::Blocks<First, Layer, Last> {};
template <class... Policies> struct Step : st::Schedule<Model, Policies...> {};

template <class... Policies> std::vector<double> train() {
  at::manual_seed(1);
  weights all;
  std::vector<double> of_microbatch(microbatches), losses;
  st::layer_list<Model> layers;
  layers.add(st::layer<First>(Embed(all)));
  for (int i = 0; i < layers_of_experts; ++i)
    layers.add(st::layer<Layer>(Route(all), Dispatch(), Experts(all), Combine()));
  layers.add(st::layer<Last>(Head(all, of_microbatch)));

  st::torch::tensors tensors;
  st::host::lanes lanes({}, [](st::lane) { st::torch::use_one_thread(); }); // sums depend on the threads
  st::executor step{Step<Policies...>{}, st::backend{tensors, lanes}, layers,
                    st::sizes{.microbatches = microbatches}};
  for (int i = 0; i < steps; ++i) {
    step();
    for (st::torch::parameter& weight : all) {
      weight.data().sub_(weight.main_grad(), 0.5);
      weight.zero_grad();
    }
    double sum = 0;
    for (double const each : of_microbatch) sum += each;
    losses.push_back(sum);
  }
  return losses;
}

} // namespace

int main() try {
  auto const serial = train<st::Serial>(), overlapped = train<st::TwoStream1F1B, st::SplitDW>();
  std::printf("  step   Serial  TwoStream1F1B, SplitDW\n");
  for (std::size_t i = 9; i < serial.size(); i += 10)
    std::printf("  %4zu  %7.4f  %22.4f\n", i + 1, serial[i], overlapped[i]);
  bool const learns = serial.back() < serial.front() / 2;
  std::printf("same losses to the last bit: %s\n", serial == overlapped ? "yes" : "NO");
  return learns && serial == overlapped ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "own_torch: %s\n", error.what());
  return 1;
}
