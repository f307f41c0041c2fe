/// A small trainer of one's own over torch: two ranks, which are threads, share the experts and have a copy each of all else.
/// Attention is torch's own kernel and made again in backward instead of kept; gradients of copies are added up; their norm is
/// clipped; a checkpoint is written. Two other ranks go on from it with another schedule and come to the same bits.
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

constexpr int symbols = 24, width = 32, heads = 4, words = 12, experts = 4, layers_of_model = 2;
constexpr int ranks = 2, microbatches = 3, steps = 40, steps_before_checkpoint = 15;

using Comm = st::torch::expert_parallel<st::host::communicator>;

struct hidden : st::value {};
struct residual : st::value {};
struct gate : st::value {};
struct sorted : st::value {};
struct arrived : st::value {};
struct expert_rows : st::value {};
struct loss : st::objective {};
struct routing : st::metadata {
  struct type {
    at::Tensor place; // of a word among the rows by expert
    std::vector<int> rows; // how many for each expert
  };
};
struct way : st::metadata {
  using type = Comm::handle; // which rows came from where
};

/// A weight, and what the optimizer keeps for it.
struct trained {
  st::torch::parameter weight;
  at::Tensor momentum;
  bool of_experts; ///< only this rank has it; every rank has a copy of all others
};

/// What a rank has: weights, which must not move since graphs point at them, what its microbatches read in this step, and
/// their losses.
struct rank_state {
  int rank;
  std::deque<trained> weights{};
  std::vector<at::Tensor> texts = std::vector<at::Tensor>(microbatches);
  std::vector<double> losses = std::vector<double>(microbatches);

  st::torch::parameter* add(std::string const& name, at::IntArrayRef sizes, bool of_experts = false) {
    std::size_t const number = weights.size(),
                      seed = of_experts ? 100 * static_cast<std::size_t>(rank + 1) + number : number;
    at::Tensor const initial = at::randn(sizes, at::make_generator<at::CPUGeneratorImpl>(seed)).mul_(0.2);
    weights.push_back({{std::to_string(number) + "." + name, initial}, at::zeros(sizes), of_experts});
    return &weights.back().weight;
  }
  at::Tensor text(int microbatch) const { return texts.at(static_cast<std::size_t>(microbatch)); }
};

struct Embed : st::Phase<st::attn> {
  using writes = st::values<hidden>;
  rank_state* of;
  st::torch::parameter* table;
  explicit Embed(rank_state& r) : of(&r), table(r.add("table", {symbols, width})) {}
  void forward(auto& io) {
    io[hidden{}] = st::torch::embedding(of->text(io.microbatch()).slice(0, 0, words), *table);
  }
};

struct Attention : st::Phase<st::attn> {
  using reads = st::values<hidden>;
  using writes = st::values<residual>;
  st::torch::parameter *gain, *in, *out;
  explicit Attention(rank_state& r)
      : gain(r.add("gain", {width})), in(r.add("in", {width, 3 * width})), out(r.add("out", {width, width})) {
  }
  void forward(auto& io) {
    at::Tensor const x = io[hidden{}];
    at::Tensor const parts = st::torch::linear(st::torch::rms_norm(x, *gain), *in);
    at::Tensor const by_head = parts.view({words, 3, heads, width / heads}).permute({1, 2, 0, 3});
    at::Tensor const mixed =
        at::scaled_dot_product_attention(by_head[0], by_head[1], by_head[2], {}, 0, /*is_causal=*/true);
    io[residual{}] = x + st::torch::linear(mixed.transpose(0, 1).reshape({words, width}), *out);
  }
};

/// Every word goes to one expert.
struct Router : st::Phase<st::attn> {
  using reads = st::values<residual>;
  using writes = st::values<sorted, gate, routing>;
  st::torch::parameter* weight;
  explicit Router(rank_state& r) : weight(r.add("router", {width, experts})) {}
  void forward(auto& io) {
    auto const [probability, expert] = st::torch::linear(io[residual{}], *weight).softmax(1).max(1, true);
    at::Tensor const chosen = expert.flatten(), order = chosen.argsort(true, 0);
    at::Tensor const count = chosen.bincount({}, experts);
    auto const* const first = count.const_data_ptr<std::int64_t>();
    io[routing{}] = {order.argsort(), {first, first + experts}};
    io[sorted{}] = io[residual{}].index_select(0, order);
    io[gate{}] = probability;
  }
};

struct Dispatch : st::Phase<st::dispatch> {
  using reads = st::values<sorted, routing>;
  using writes = st::values<arrived, way>;
  using communicator = Comm;
  Comm* comm;
  explicit Dispatch(Comm& c) : comm(&c) {}
  void forward(auto& io) {
    io[arrived{}] = st::torch::dispatch_rows(*comm, io[sorted{}], {io[routing{}].rows}, io[way{}]);
  }
};

struct Experts : st::Phase<st::mlp> {
  using reads = st::values<arrived, way>;
  using writes = st::values<expert_rows>;
  st::torch::parameter *up, *down;
  explicit Experts(rank_state& r)
      : up(r.add("up", {experts / ranks, width, width}, true)),
        down(r.add("down", {experts / ranks, width, width}, true)) {}
  void forward(auto& io) {
    auto const& rows = io[way{}].rows();
    at::Tensor const inner = at::silu(st::torch::expert_linear(io[arrived{}], rows, *up));
    io[expert_rows{}] = st::torch::expert_linear(inner, rows, *down);
  }
};

struct Combine : st::Phase<st::combine> {
  using reads = st::values<expert_rows, gate, residual, routing, way>;
  using writes = st::values<hidden>;
  Comm* comm;
  explicit Combine(Comm& c) : comm(&c) {}
  void forward(auto& io) {
    at::Tensor const back = st::torch::combine_rows(*comm, io[expert_rows{}], io[way{}]);
    io[hidden{}] = io[residual{}] + io[gate{}] * back.index_select(0, io[routing{}].place);
  }
};

struct Head : st::Phase<st::mlp> {
  using reads = st::values<hidden>;
  using writes = st::values<loss>;
  rank_state* of;
  st::torch::parameter* weight;
  explicit Head(rank_state& r) : of(&r), weight(r.add("head", {width, symbols})) {}
  void forward(auto& io) {
    at::Tensor const next = of->text(io.microbatch()).slice(0, 1);
    io[loss{}] =
        at::cross_entropy_loss(st::torch::linear(io[hidden{}], *weight), next) / (microbatches * ranks);
    of->losses.at(static_cast<std::size_t>(io.microbatch())) = io[loss{}].template item<double>();
  }
};

struct First : st::Block<Embed> {};
struct Layer : st::Block<st::Recompute<Attention, Router>, st::Detach, Dispatch, st::Detach, Experts,
                         st::Detach, Combine> {};
struct Last : st::Block<Head> {};
struct Model : st::Blocks<First, Layer, Last> {};
template <class... Policies> struct Step : st::Schedule<Model, Policies...> {};

/// Each word follows from the one before; other texts for every step, rank and microbatch.
at::Tensor draw_text(int step, int rank, int microbatch) {
  return (at::arange(words + 1) * 5 + (step * ranks + rank) * microbatches + microbatch).remainder(symbols);
}

/// Gradients of what every rank has, added in the order of the ranks: the same bits on each. An expert has seen the rows of all.
void add_up(rank_state& mine, st::host::communicator& all) {
  for (trained& each : mine.weights) {
    if (each.of_experts) continue;
    at::Tensor const& gradient = each.weight.main_grad();
    all.all_reduce(gradient.data_ptr<float>(), static_cast<std::size_t>(gradient.numel()));
  }
}

/// Momentum, with the norm of the gradient of the whole model at most `largest_norm`.
void update(rank_state& mine, st::host::communicator& all, double rate, double largest_norm) {
  double of_copies = 0, of_experts = 0;
  for (trained& each : mine.weights)
    (each.of_experts ? of_experts : of_copies) += each.weight.main_grad().square().sum().item<double>();
  all.all_reduce(&of_experts, 1);
  double const scale = std::min(1.0, largest_norm / (std::sqrt(of_copies + of_experts) + 1e-6));
  for (trained& each : mine.weights) {
    each.momentum.mul_(0.9).add_(each.weight.main_grad(), scale);
    each.weight.data().sub_(each.momentum, rate);
    each.weight.zero_grad();
  }
}

/// The checkpoint of a rank: a dictionary of tensors by name, as `torch.save` writes it.
std::vector<char> save(rank_state const& mine) {
  c10::Dict<std::string, at::Tensor> all;
  for (trained const& each : mine.weights) {
    all.insert(each.weight.name(), each.weight.data());
    all.insert(each.weight.name() + ".momentum", each.momentum);
  }
  return torch::jit::pickle_save(all);
}

void load(rank_state& mine, std::vector<char> const& checkpoint) {
  auto const all = torch::jit::pickle_load(checkpoint).toGenericDict();
  for (trained& each : mine.weights) {
    each.weight.data().copy_(all.at(each.weight.name()).toTensor());
    each.momentum.copy_(all.at(each.weight.name() + ".momentum").toTensor());
  }
}

struct training {
  std::vector<double> losses; ///< of each step, over all ranks
  std::vector<std::vector<char>> checkpoints =
      std::vector<std::vector<char>>(ranks); ///< after the first steps
};

template <class... Policies>
void train_rank(st::host::group& group, int sums, int rank, training const* from, training& result) {
  st::host::communicator rows = group.communicator(rank), all = group.communicator(rank, sums);
  Comm comm(rows, experts / ranks);
  rank_state mine{.rank = rank};
  st::layer_list<Model> layers;
  layers.add(st::layer<First>(Embed(mine)));
  for (int i = 0; i < layers_of_model; ++i)
    layers.add(st::layer<Layer>(Attention(mine), Router(mine), Dispatch(comm), Experts(mine), Combine(comm)));
  layers.add(st::layer<Last>(Head(mine)));
  auto const place = static_cast<std::size_t>(rank);
  if (from) load(mine, from->checkpoints[place]);

  st::torch::use_one_thread(); // sums depend on the threads
  st::torch::tensors tensors;
  st::host::lanes lanes({.rank = rank, .board = &group.board()},
                        [](st::lane) { st::torch::use_one_thread(); });
  st::executor forward_and_backward{Step<Policies...>{}, st::backend{tensors, lanes}, layers,
                                    st::sizes{.microbatches = microbatches}};
  for (int step = from ? steps_before_checkpoint : 0; step < steps; ++step) {
    for (int m = 0; m < microbatches; ++m) mine.texts[static_cast<std::size_t>(m)] = draw_text(step, rank, m);
    forward_and_backward();
    add_up(mine, all);
    update(mine, all, 0.1, 1.0);
    double sum = 0;
    for (double const each : mine.losses) sum += each;
    all.all_reduce(&sum, 1);
    if (rank == 0) result.losses.push_back(sum);
    if (step + 1 == steps_before_checkpoint) result.checkpoints[place] = save(mine);
  }
}

template <class... Policies> training train(training const* from = nullptr) {
  training result;
  st::host::group group(ranks);
  int const sums =
      group.add_domain(); // calls of one domain come in one order; the lanes have theirs for rows
  group.run([&](int rank) { train_rank<Policies...>(group, sums, rank, from, result); });
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
