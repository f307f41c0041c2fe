/// What stands around a step in a trainer of one's own: attention by torch's own kernel, made again in backward instead of
/// kept; gradients of replicas added up; clipping by the norm of all gradients; a checkpoint. Two replicas, which are threads,
/// train a small language model; then two others go on from the checkpoint with another schedule and come to the same bits.
#include <stretto/adapters/host.hpp>
#include <stretto/adapters/torch.hpp>
#include <stretto/stretto.hpp>

#include <torch/csrc/jit/serialization/pickle.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <exception>
#include <string>
#include <vector>

namespace st = stretto;

namespace {

constexpr int symbols = 24, width = 32, heads = 4, words = 12, layers_of_model = 2;
constexpr int replicas = 2, microbatches = 3, steps = 40, steps_before_checkpoint = 15;

struct hidden : st::value {};
struct middle : st::value {};
struct loss : st::objective {};

/// A weight, and what the optimizer keeps for it. Graphs point at weights, so they must not move.
struct trained {
  st::torch::parameter weight;
  at::Tensor momentum;
};

/// One replica: its weights, what its microbatches read in this step, and their losses.
struct replica {
  std::deque<trained> weights;
  std::vector<at::Tensor> texts = std::vector<at::Tensor>(microbatches);
  std::vector<double> losses = std::vector<double>(microbatches);

  st::torch::parameter* add(std::string const& name, at::IntArrayRef sizes) {
    std::string const numbered = std::to_string(weights.size()) + "." + name;
    weights.push_back(
        {{numbered, at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(weights.size())).mul_(0.2)},
         at::zeros(sizes)});
    return &weights.back().weight;
  }
  at::Tensor text(int microbatch) const { return texts.at(static_cast<std::size_t>(microbatch)); }
};

struct Embed : st::Phase<st::attn> {
  using writes = st::values<hidden>;
  replica* of;
  st::torch::parameter* table;
  explicit Embed(replica& r) : of(&r), table(r.add("table", {symbols, width})) {}
  void forward(auto& io) {
    io[hidden{}] = st::torch::embedding(of->text(io.microbatch()).slice(0, 0, words), *table);
  }
};

struct Attention : st::Phase<st::attn> {
  using reads = st::values<hidden>;
  using writes = st::values<middle>;
  st::torch::parameter *gain, *in, *out;
  explicit Attention(replica& r)
      : gain(r.add("gain", {width})), in(r.add("in", {width, 3 * width})), out(r.add("out", {width, width})) {
  }
  void forward(auto& io) {
    at::Tensor const x = io[hidden{}];
    at::Tensor const parts = st::torch::linear(st::torch::rms_norm(x, *gain), *in);
    at::Tensor const by_head = parts.view({words, 3, heads, width / heads}).permute({1, 2, 0, 3});
    at::Tensor const mixed =
        at::scaled_dot_product_attention(by_head[0], by_head[1], by_head[2], {}, 0, /*is_causal=*/true);
    io[middle{}] = x + st::torch::linear(mixed.transpose(0, 1).reshape({words, width}), *out);
  }
};

struct FeedForward : st::Phase<st::mlp> {
  using reads = st::values<middle>;
  using writes = st::values<hidden>;
  st::torch::parameter *up, *down;
  explicit FeedForward(replica& r) : up(r.add("up", {width, width})), down(r.add("down", {width, width})) {}
  void forward(auto& io) {
    io[hidden{}] = io[middle{}] + st::torch::linear(at::silu(st::torch::linear(io[middle{}], *up)), *down);
  }
};

struct Head : st::Phase<st::mlp> {
  using reads = st::values<hidden>;
  using writes = st::values<loss>;
  replica* of;
  st::torch::parameter* weight;
  explicit Head(replica& r) : of(&r), weight(r.add("head", {width, symbols})) {}
  void forward(auto& io) {
    at::Tensor const next = of->text(io.microbatch()).slice(0, 1);
    io[loss{}] =
        at::cross_entropy_loss(st::torch::linear(io[hidden{}], *weight), next) / (microbatches * replicas);
    of->losses.at(static_cast<std::size_t>(io.microbatch())) = io[loss{}].template item<double>();
  }
};

struct First : st::Block<Embed> {};
struct Layer : st::Block<st::Recompute<Attention>, st::Detach, FeedForward> {};
struct Last : st::Block<Head> {};
struct Model : st::Blocks<First, Layer, Last> {};
template <class... Policies> struct Step : st::Schedule<Model, Policies...> {};

/// Each word follows from the one before; other texts for every step, replica and microbatch.
at::Tensor draw_text(int step, int rank, int microbatch) {
  return (at::arange(words + 1) * 5 + (step * replicas + rank) * microbatches + microbatch)
      .remainder(symbols);
}

/// The gradients of all replicas, added in the order of their ranks: the same bits on each.
void add_up(replica& mine, st::host::communicator& all) {
  for (trained& each : mine.weights) {
    at::Tensor const& gradient = each.weight.main_grad();
    all.all_reduce(gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel()));
  }
}

/// Momentum, with the norm of all gradients together at most `largest_norm`.
void update(replica& mine, double rate, double largest_norm) {
  double squares = 0;
  for (trained& each : mine.weights) squares += each.weight.main_grad().square().sum().item<double>();
  double const scale = std::min(1.0, largest_norm / (std::sqrt(squares) + 1e-6));
  for (trained& each : mine.weights) {
    each.momentum.mul_(0.9).add_(each.weight.main_grad(), scale);
    each.weight.data().sub_(each.momentum, rate);
    each.weight.zero_grad();
  }
}

/// A checkpoint is a dictionary of tensors by name; torch.load reads it too.
std::vector<char> save(replica const& mine) {
  c10::Dict<std::string, at::Tensor> all;
  for (trained const& each : mine.weights) {
    all.insert(each.weight.name(), each.weight.data());
    all.insert(each.weight.name() + ".momentum", each.momentum);
  }
  return torch::jit::pickle_save(all);
}

void load(replica& mine, std::vector<char> const& checkpoint) {
  auto const all = torch::jit::pickle_load(checkpoint).toGenericDict();
  for (trained& each : mine.weights) {
    each.weight.data().copy_(all.at(each.weight.name()).toTensor());
    each.momentum.copy_(all.at(each.weight.name() + ".momentum").toTensor());
  }
}

struct training {
  std::vector<double> losses; ///< of each step, over all replicas
  std::vector<char> checkpoint; ///< after the first steps
};

template <class... Policies>
void train_replica(st::host::group& group, int gradients, int rank, training const* from, training& result) {
  replica mine;
  st::layer_list<Model> layers;
  layers.add(st::layer<First>(Embed(mine)));
  for (int i = 0; i < layers_of_model; ++i) layers.add(st::layer<Layer>(Attention(mine), FeedForward(mine)));
  layers.add(st::layer<Last>(Head(mine)));
  if (from) load(mine, from->checkpoint);

  st::torch::use_one_thread(); // sums depend on the threads
  st::torch::tensors tensors;
  st::host::communicator all = group.communicator(rank, gradients);
  st::host::lanes lanes({.rank = rank, .board = &group.board()},
                        [](st::lane) { st::torch::use_one_thread(); });
  st::executor forward_and_backward{Step<Policies...>{}, st::backend{tensors, lanes}, layers,
                                    st::sizes{.microbatches = microbatches}};
  for (int step = from ? steps_before_checkpoint : 0; step < steps; ++step) {
    for (int m = 0; m < microbatches; ++m) mine.texts[static_cast<std::size_t>(m)] = draw_text(step, rank, m);
    forward_and_backward();
    add_up(mine, all);
    update(mine, 0.1, 1.0);
    double sum = 0;
    for (double const each : mine.losses) sum += each;
    all.all_reduce(&sum, 1);
    if (rank == 0) result.losses.push_back(sum);
    if (rank == 0 && step + 1 == steps_before_checkpoint) result.checkpoint = save(mine);
  }
}

template <class... Policies> training train(training const* from = nullptr) {
  training result;
  st::host::group group(replicas);
  int const gradients = group.add_domain();
  group.run([&](int rank) { train_replica<Policies...>(group, gradients, rank, from, result); });
  return result;
}

} // namespace

int main() try {
  training const whole = train<st::Serial>(), resumed = train<st::TwoStream1F1B, st::SplitDW>(&whole);
  std::printf("  step   loss\n");
  for (std::size_t i = 9; i < whole.losses.size(); i += 10)
    std::printf("  %4zu  %7.4f\n", i + 1, whole.losses[i]);
  bool const learns = whole.losses.back() < whole.losses.front() / 2;
  bool const same = std::equal(resumed.losses.begin(), resumed.losses.end(),
                               whole.losses.begin() + steps_before_checkpoint, whole.losses.end());
  std::printf("resumed after step %d with another schedule, same losses to the last bit: %s\n",
              steps_before_checkpoint, same ? "yes" : "NO");
  return learns && same ? 0 : 1;
} catch (std::exception const& error) {
  std::fprintf(stderr, "own_trainer: %s\n", error.what());
  return 1;
}
