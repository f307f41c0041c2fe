#include <train_moe/gradients.hpp>
#include <train_moe/model/walk_model.hpp>
#include <train_moe/steps/step_runner.hpp>

#include <stretto/adapters/host/group.hpp>
#include <stretto/adapters/torch/threads.hpp>
#include <stretto/pipelines/one_f_one_b.hpp>
#include <stretto/plan/error.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <type_traits>

using namespace train_moe;

namespace {

model_config tiny() {
  model_config config;
  config.layers = 3;
  config.dense = 1;
  config.hidden = 8;
  config.heads = 2;
  config.ffn = 6;
  config.experts = 4;
  config.top_k = 2;
  config.shared = 1;
  config.sequence = 5;
  config.auxiliary = 0.05;
  config.type = number_type::f64;
  return config;
}

/// What one coordinate of a parameter was found to have. `owner` is the rank for experts, -1 for the rest.
struct worst_case {
  double difference = 0;
  double largest_gradient = 0;
  bool zeros_agree = true;
};

/// A tiny model on one rank of several, and the loss whose gradient it has: cross-entropy and load balancing.
class rank_under_test {
public:
  /// `capacity`: slots of an expert for the rows of a rank, 0: as many as there are.
  rank_under_test(model_config const& config, int microbatches, stretto::host::group& group, int rank,
                  int capacity)
      : rank_(rank), microbatches_(microbatches), ranks_(group.communicator(rank, 1)),
        rows_(group.communicator(rank, 0)), exchange_(rows_, config.experts / group.ranks(), capacity),
        model_(config, exchange_), plan_(stretto::proved_plan<stretto::OneFOneBOverlapped>(1, microbatches)),
        records_(static_cast<std::size_t>(config.layers * microbatches)) {
    model_.step().resize(config.layers, microbatches, group.ranks());
    if (capacity > 0) model_.step().use_slots(capacity, at::kCPU);
    for (int m = 0; m < microbatches; ++m) {
      auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(1 + rank * 100 + m));
      auto const draw = [&] { return at::randint(12, {3 * config.sequence}, generator, at::kLong); };
      auto const ids = draw();
      model_.step().batches[static_cast<std::size_t>(m)] = {ids, draw()};
    }
    std::size_t next = 0;
    model_.layers().for_each([&](auto& layer, int) {
      if constexpr (std::is_same_v<std::remove_cvref_t<decltype(layer)>,
                                   stretto::layer<MoeLayer<expert_exchange>>>)
        layer.template phase<AttentionAndRouter>().routes().replay(&records_[next++]);
    });
    run_ = make_split_step({model_, plan_, {group.ranks(), 1, rank}, alone_, group.board()});
  }

  /// Gradients by a split schedule; also fixes the routers' choices from now on.
  void differentiate() {
    run_->run();
    reduce_replicated(model_.parameters(), ranks_, rows_);
    for (auto& each : records_) each.replay = true;
  }

  double loss() {
    at::NoGradGuard const no_graph;
    double sum = 0;
    for (int m = 0; m < microbatches_; ++m) {
      walk_state<language_model::types> state;
      walk_model(model_, state, m);
      sum += model_.step().losses[static_cast<std::size_t>(m)].item<double>();
      for (auto const& layer : model_.step().auxiliary)
        if (auto const& value = layer[static_cast<std::size_t>(m)]; value.defined())
          sum += value.item<double>();
    }
    ranks_.all_reduce(&sum, 1);
    return sum * model_.step().share;
  }

  /// Five-point differences at a sample of the coordinates of every parameter, the largest gradient among them.
  void compare(std::map<std::string, worst_case>& found) {
    for (auto const& each : model_.parameters()) {
      auto const owners = each.sharded() ? ranks_.ranks() : 1;
      for (int owner = 0; owner < owners; ++owner) {
        auto const mine = !each.sharded() || owner == rank_;
        auto worst = compare_parameter(*each.weight, mine, each.sharded() ? owner : 0);
        auto const name = each.weight->name() + (each.sharded() ? " of rank " + std::to_string(owner) : "");
        if (rank_ == (each.sharded() ? owner : 0)) found[name] = worst;
      }
    }
  }

private:
  worst_case compare_parameter(stretto::torch::parameter& weight, bool mine, int salt) {
    constexpr int samples = 12;
    constexpr double h = 1e-3;
    auto const values = weight.data().view({-1});
    auto const gradients = weight.main_grad().view({-1});
    std::vector<std::int64_t> places{gradients.abs().argmax().item<std::int64_t>()};
    std::mt19937_64 random(static_cast<std::uint64_t>(salt));
    for (int i = 1; i < samples; ++i)
      places.push_back(static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(values.numel())));
    worst_case worst;
    worst.largest_gradient = gradients.abs().max().item<double>();
    for (auto const place : places) {
      auto const at = values[place].item<double>();
      auto const loss_at = [&](double offset) {
        if (mine) values[place].fill_(at + offset);
        return loss();
      };
      auto const slope = (8 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h);
      if (mine) values[place].fill_(at);
      auto const gradient = gradients[place].item<double>();
      if (gradient == 0) worst.zeros_agree &= slope == 0;
      worst.difference = std::max(worst.difference, std::abs(slope - gradient));
    }
    return worst;
  }

  int rank_;
  int microbatches_;
  rank_communicator ranks_;
  timed_exchange<rank_communicator> rows_;
  expert_exchange exchange_;
  language_model model_;
  stretto::plan plan_;
  no_stage_peers alone_;
  std::vector<choice_record> records_;
  std::unique_ptr<step_runner> run_;
};

} // namespace

TEST_CASE("the gradient of the whole model is that of finite differences", "[torch]") {
  auto config = tiny();
  int ranks = 1, microbatches = 2, capacity = 0;
  SECTION("one rank") {}
  SECTION("two ranks") { ranks = 2; }
  SECTION("one expert of all is chosen, no shared ones") { config.top_k = 1, config.shared = 0, ranks = 2; }
  SECTION("all experts are chosen, one on each rank") { config.top_k = 4, ranks = 4, microbatches = 1; }
  SECTION("slots, fewer than are needed: what is lost counts as zero") { ranks = 2, capacity = 5; }
  CAPTURE(ranks, config.top_k, config.shared, capacity);

  std::vector<std::map<std::string, worst_case>> found(static_cast<std::size_t>(ranks));
  stretto::host::group group(ranks);
  group.add_domain();
  group.run([&](int rank) {
    stretto::torch::use_one_thread();
    rank_under_test tested(config, microbatches, group, rank, capacity);
    tested.differentiate();
    tested.compare(found[static_cast<std::size_t>(rank)]);
  });
  std::size_t parameters = 0;
  for (auto const& of_rank : found)
    for (auto const& [name, worst] : of_rank) {
      CAPTURE(name, worst.difference, worst.largest_gradient);
      CHECK(worst.difference <= 1e-8 * worst.largest_gradient);
      CHECK(worst.zeros_agree);
      ++parameters;
    }
  CHECK(parameters >= 25);
}

TEST_CASE("a router's gradient by the logarithms of its weights is that by the weights", "[torch]") {
  auto config = tiny();
  config.top_k = GENERATE(1, 2, 4);
  config.auxiliary = 0;
  // Large logits make weights that are zero in every type.
  double const size = GENERATE(1.0, 1e5);
  CAPTURE(config.top_k, size);
  step_data step;
  step.resize(config.layers, 1, 1);
  router tested({config, "layers.0."}, step, 0);
  stretto::torch::parameter* weight = nullptr;
  tested.for_each_parameter([&](model_parameter each) { weight = each.weight; });
  auto generator = at::detail::createCPUGenerator(1);
  auto const draw = [&](at::IntArrayRef sizes) { return at::randn(sizes, generator, at::kDouble); };
  auto const x = draw({20, config.hidden}).mul_(size).set_requires_grad(true);
  auto const gradient = draw({20, config.top_k});

  auto const chosen = tested({x, x, nullptr}, 0);
  CHECK_FALSE(chosen.weights.requires_grad());
  auto weights = x.mm(weight->leaf()).softmax(-1).gather(1, chosen.ids);
  if (config.top_k > 1) weights = weights / weights.sum(1, true);
  CHECK(at::allclose(chosen.weights, weights, 1e-14, 0));
  CHECK((weights == 0).any().item<bool>() == (size > 1 && config.top_k > 1));

  auto const exact = torch::autograd::grad({weights}, {x}, {gradient})[0];
  auto const ours = torch::autograd::grad({chosen.log_weights}, {x}, {gradient * chosen.weights})[0];
  CHECK(at::allclose(ours, exact, 1e-12, 1e-13));
  if (size == 1) CHECK(exact.abs().max().item<double>() > 1e-2);
}
