#include "bits.hpp"

#include <stretto/adapters/host.hpp>
#include <stretto/adapters/torch.hpp>
#include <stretto/executor.hpp>
#include <stretto/pipelines/all.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <deque>
#include <functional>
#include <string>
#include <vector>

using namespace stretto;
namespace st = stretto::torch;
using Catch::Matchers::ContainsSubstring;

#ifdef NDEBUG
static_assert(std::same_as<st::tensors, st::unchecked_tensors>);
#else
static_assert(std::same_as<st::tensors, st::checked_tensors>);
#endif

namespace {

// --- What one phase keeps. -------------------------------------------------------------------------------------------

/// The values of a phase that reads one and writes two.
struct written {
  at::Tensor first, second;
};
using forward_of_phase = std::function<written(at::Tensor const& read)>;

/// The value that the check names, if any, of a phase that says it saves `saves`.
std::string named(std::vector<std::string> const& saves, forward_of_phase const& forward) {
  st::checked_tensors const adapter;
  auto const is_saved = [&](char const* name) {
    return std::find(saves.begin(), saves.end(), name) != saves.end();
  };
  at::Tensor const root = random_tensor({4, 6}, at::kDouble, 1);
  at::Tensor const read = adapter.detach(root), of_other_reader = adapter.detach(root);
  written out;
  phase_value<at::Tensor> const values[] = {{&read, {"read", 4}, false, is_saved("read"), false},
                                            {&out.first, {"first", 5}, true, is_saved("first"), false},
                                            {&out.second, {"second", 6}, true, is_saved("second"), false}};
  st::tensors::context context;
  auto const scope = adapter.forward_scope(context);
  try {
    adapter.check_forward({"Subject", 7}, values, 3, [&] {
      out = forward(read);
      for (at::Tensor* each : {&out.first, &out.second}) // It must write both.
        if (!each->defined()) *each = at::zeros({1});
    });
  } catch (std::logic_error const& error) {
    std::string const text = error.what();
    CHECK(text.find("phase Subject keeps '") == 0);
    auto const begin = text.find('\'') + 1;
    auto const name = text.substr(begin, text.find('\'', begin) - begin);
    CHECK(text.find(name == "read" ? "which it reads" : "which it writes") != std::string::npos);
    return name;
  }
  return "";
}

} // namespace

TEST_CASE("a phase that keeps what it did not name is told which value",
          "[torch][saves][megatron-01][megatron-37][megatron-d]") {
  st::parameter w("w", random_tensor({4, 6}, at::kDouble, 2));
  auto const x_squared = [](at::Tensor const& x) { return written{x * x, {}}; };
  CHECK(named({}, x_squared) == "read");
  CHECK(named({"first", "second"}, x_squared) == "read");
  CHECK(named({"read"}, x_squared).empty());

  auto const view_saved = [&](at::Tensor const& x) {
    return written{x.view({24}) * w.value().view({24}), {}};
  };
  CHECK(named({}, view_saved) == "read");
  CHECK(named({"read"}, view_saved).empty());

  auto const output_saved = [](at::Tensor const& x) { return written{at::sigmoid(x), {}}; };
  CHECK(named({}, output_saved) == "first");
  CHECK(named({"read"}, output_saved) == "first");
  CHECK(named({"first"}, output_saved).empty());

  auto const output_used_again = [](at::Tensor const& x) {
    auto const y = x + 1;
    return written{y, y * y};
  };
  CHECK(named({}, output_used_again) == "first");
  CHECK(named({"second"}, output_used_again) == "first");
  CHECK(named({"first"}, output_used_again).empty());

  auto const view_of_saved_output = [](at::Tensor const& x) {
    return written{{}, at::sigmoid(x).view({24})};
  };
  CHECK(named({}, view_of_saved_output) == "second");
  CHECK(named({"second"}, view_of_saved_output).empty());

  auto const view_of_saved_input = [](at::Tensor const& x) {
    auto const y = x + 1;
    return written{y.view({24}), y * y};
  };
  CHECK(named({}, view_of_saved_input) == "first");
  CHECK(named({"first"}, view_of_saved_input).empty());

  auto const handed_on_and_saved = [](at::Tensor const& x) { return written{x, x * x}; };
  CHECK(named({}, handed_on_and_saved) == "read");
  CHECK(named({"read"}, handed_on_and_saved).empty());

  at::Tensor kept;
  CHECK(named({}, [&](at::Tensor const& x) { return kept = x, written{x + 1, {}}; }) == "read");
  CHECK(named({}, [&](at::Tensor const& x) { return kept = x + 1, written{kept.detach(), {}}; }) == "first");
}

TEST_CASE("a phase that keeps nothing is let through", "[torch][saves]") {
  auto const silent = [](forward_of_phase const& forward) { return named({}, forward).empty(); };
  CHECK(silent([](at::Tensor const& x) { return written{x + 1, x.sum(0)}; }));
  CHECK(silent([](at::Tensor const& x) { return written{x, {}}; }));
  CHECK(silent([](at::Tensor const& x) { return written{x.view({24}), x.transpose(0, 1)}; }));
  CHECK(silent([](at::Tensor const& x) { return written{(x + 1).view({24}), {}}; }));
  CHECK(silent([](at::Tensor const& x) {
    auto const halves = (x + 1).chunk(2);
    return written{halves[0], halves[1]};
  }));
  CHECK(silent([](at::Tensor const& x) {
    auto const y = x + 1;
    return written{y, y.view({24})};
  }));
  CHECK(silent([](at::Tensor const& x) {
    auto const y = x + 1;
    return written{y, y};
  }));
  // What is saved lies between the two.
  CHECK(silent([](at::Tensor const& x) { return written{at::sigmoid(x + 1) + 1, {}}; }));
  CHECK(silent([](at::Tensor const&) { return written{at::zeros({3}), at::zeros({2}, at::kLong)}; }));
}

TEST_CASE("weight gradients put off keep their input unless the weight is frozen", "[torch][saves]") {
  st::parameter weight("w", random_tensor({6, 3}, at::kDouble, 3));
  st::parameter frozen("f", random_tensor({6, 3}, at::kDouble, 3), false);
  auto const with = [&](st::parameter& p) {
    return [&](at::Tensor const& x) { return written{st::linear(x, p), {}}; };
  };
  CHECK(named({}, with(weight)) == "read");
  CHECK(named({"read"}, with(weight)).empty());
  CHECK(named({}, with(frozen)).empty());
}

// --- What backward would miss. ---------------------------------------------------------------------------------------

namespace {

/// What the check says of a node of two phases: `first` reads the input, `second` what that wrote, inside of the node.
template <class First, class Second> std::string said_of(First&& first, Second&& second) {
  st::checked_tensors const adapter;
  at::Tensor const read = adapter.detach(random_tensor({4, 6}, at::kDouble, 1));
  at::Tensor middle, out;
  phase_value<at::Tensor> const of_first[] = {{&read, {"read", 4}, false, true, false},
                                              {&middle, {"middle", 6}, true, true, false}};
  phase_value<at::Tensor> const of_second[] = {{&middle, {"middle", 6}, false, true, true},
                                               {&out, {"out", 3}, true, true, false}};
  st::tensors::context context;
  auto const scope = adapter.forward_scope(context);
  try {
    adapter.check_forward({"First", 5}, of_first, 2, [&] { middle = first(read); });
    adapter.check_forward({"Second", 6}, of_second, 2, [&] { out = second(middle); });
  } catch (std::logic_error const& error) {
    return error.what();
  }
  return "";
}
at::Tensor twice(at::Tensor const& x) { return x * 2; }

} // namespace

TEST_CASE("a weight that backward would not train is refused, whatever way the phase holds it", "[torch]") {
  auto const w = random_tensor({6, 3}, at::kDouble, 2).set_requires_grad(true);
  auto const made_before = w * 2;
  st::parameter p("p", w), q("q", w);
  at::Tensor const& kept = p.value(); // outside of every forward

  auto const by_hand = said_of([&](auto const& x) { return x.matmul(w).tanh(); }, twice);
  CHECK_THAT(by_hand,
             ContainsSubstring("phase First uses a tensor of sizes [6, 3] that asks for a gradient"));
  CHECK_THAT(by_hand, ContainsSubstring("hold it as a parameter and call value()"));
  CHECK_THAT(said_of(twice, [&](auto const& x) { return x.matmul(w); }), ContainsSubstring("phase Second"));
  CHECK_THAT(said_of([&](auto const& x) { return x.matmul(made_before); }, twice),
             ContainsSubstring("phase First"));
  CHECK_THAT(said_of([&](auto const&) { return w * w; }, twice), ContainsSubstring("phase First"));
  CHECK_THAT(said_of([&](auto const& x) { return x.matmul(kept); }, twice), ContainsSubstring("phase First"));

  CHECK(said_of([&](auto const& x) { return x.matmul(p.value()); },
                [&](auto const& x) { return x.matmul(p.value().t()) * q.value().sum(); }) == "");
  CHECK(said_of([&](auto const& x) { return st::linear(x, p) + x.matmul(w.detach()); }, twice) == "");
  CHECK(said_of([](auto const& x) { return x; }, twice) == "");
  CHECK(said_of([&](auto const&) { return at::zeros({2}); }, twice) == "");
}

TEST_CASE("a weight that would not be trained is seen in backward, where forward was not looked at",
          "[torch]") {
  st::checked_tensors const adapter;
  auto const plain = random_tensor({6, 3}, at::kDouble, 2).set_requires_grad(true);
  st::parameter p("p", plain);
  for (bool const halves : {false, true}) {
    auto backward_of = [&](auto const& forward) {
      at::Tensor leaf = adapter.detach(random_tensor({4, 6}, at::kDouble, 1)), leaf_gradient, root;
      st::tensors::context context;
      {
        auto const scope = adapter.forward_scope(context);
        root = forward(leaf);
      }
      at::Tensor root_gradient = at::ones({4, 3}, at::kDouble);
      bool const is_objective = false;
      gradient_request<at::Tensor> const request{
          &root, &root_gradient, &is_objective, 1, &leaf, &leaf_gradient, 1};
      halves ? adapter.backward_input(context, request) : adapter.backward(context, request);
    };
    CHECK_THROWS_WITH(backward_of([&](auto const& x) { return x.matmul(plain); }),
                      ContainsSubstring("a phase uses a tensor of sizes [6, 3]"));
    CHECK_NOTHROW(backward_of([&](auto const& x) { return x.matmul(p.value()) + st::linear(x, p); }));
  }
}

TEST_CASE("an objective that is more than a number or has no graph is refused before backward", "[torch]") {
  st::checked_tensors const adapter;
  for (bool const halves : {false, true}) {
    auto backward_of = [&](auto const& forward, bool is_objective = true) {
      at::Tensor leaf = adapter.detach(random_tensor({4, 6}, at::kDouble, 1)), leaf_gradient, root;
      st::tensors::context context;
      {
        auto const scope = adapter.forward_scope(context);
        root = forward(leaf);
      }
      at::Tensor root_gradient = is_objective ? at::Tensor() : at::ones({4, 6}, at::kDouble);
      gradient_request<at::Tensor> const request{
          &root, &root_gradient, &is_objective, 1, &leaf, &leaf_gradient, 1};
      halves ? adapter.backward_input(context, request) : adapter.backward(context, request);
      return leaf_gradient.defined();
    };
    CHECK(backward_of([](auto const& x) { return x.square().mean(); }));
    CHECK(backward_of([](auto const& x) { return x.square().mean().view({1, 1}); }));
    CHECK(backward_of([](auto const& x) { return x.square(); }, false));
    CHECK_THROWS_WITH(backward_of([](auto const& x) { return x.square().sum(1); }),
                      "an objective has the sizes [4] and is no single number, from which backward starts; "
                      "write its mean or its sum");
    CHECK_THROWS_WITH(backward_of([](auto const& x) { return x.detach().square().mean(); }),
                      ContainsSubstring("an objective does not depend on what its layer reads"));
  }
}

TEST_CASE("a value that a phase says it writes and does not is named", "[torch]") {
  CHECK(said_of(twice, [](auto const&) { return at::Tensor{}; }) ==
        "phase Second declares 'out' in its `writes` and left it empty; assign io[out{}]");
}

// --- Whole steps. ----------------------------------------------------------------------------------------------------

namespace {

struct hidden : value {};
struct middle : value {};
struct loss : objective {};
struct second_loss : objective {};

constexpr int microbatches = 4;

struct Embed : Phase<attn> {
  using writes = values<hidden>;
  using saves = values<>;
  st::parameter* w;
  explicit Embed(st::parameter* p) : w(p) {}
  void forward(auto& io) {
    io[hidden{}] =
        st::linear(random_tensor({5, 6}, at::kDouble, 50u + static_cast<unsigned>(io.microbatch())), *w);
  }
};
struct EmbedLayer : Block<Embed> {};

/// Two nodes of two phases; `Honest` phases name what they save, others say that it is nothing.
template <bool Honest> struct Gate : Phase<attn> {
  using reads = values<hidden>;
  using writes = values<middle>;
  using saves = std::conditional_t<Honest, values<middle>, values<>>;
  static constexpr bool has_weights = false;
  void forward(auto& io) { io[middle{}] = at::sigmoid(io[hidden{}] + 1); }
};
struct Out : Phase<mlp> {
  using reads = values<middle>;
  using writes = values<hidden>;
  using saves = values<middle>;
  st::parameter* w;
  explicit Out(st::parameter* p) : w(p) {}
  void forward(auto& io) { io[hidden{}] = st::linear(io[middle{}], *w); }
};
template <bool Honest> struct GateLayer : Block<Gate<Honest>, Detach, Out> {};
template <bool Honest> struct FusedLayer : Block<Gate<Honest>, Out> {};

/// The trunk's output has two readers; this one passes it on.
template <class Loss, bool Honest> struct Square : Phase<mlp> {
  using reads = values<hidden>;
  using writes = values<Loss>;
  using saves = std::conditional_t<Honest, values<hidden>, values<>>;
  static constexpr bool has_weights = false;
  void forward(auto& io) { io[Loss{}] = (io[hidden{}] * io[hidden{}]).sum(); }
};
template <bool Honest> struct TrunkHead : Block<Square<second_loss, Honest>> {
  using carries = values<hidden>;
};
struct LastHead : Block<Square<loss, true>> {};

template <template <bool> class Middle, bool HonestMiddle, bool HonestHead>
struct Model : Blocks<EmbedLayer, Middle<HonestMiddle>, TrunkHead<HonestHead>, LastHead> {};

/// The gradients after two steps, or what the step said.
struct outcome {
  std::vector<at::Tensor> gradients;
  std::string error;
};
template <template <bool> class Middle, bool HonestMiddle, bool HonestHead, class... Policies>
outcome train(std::string const& kinds) {
  using M = Model<Middle, HonestMiddle, HonestHead>;
  std::deque<st::parameter> weights;
  layer_list<M> layers;
  for (char const kind : kinds) {
    weights.emplace_back("w", random_tensor({6, 6}, at::kDouble, weights.size()));
    if (kind == 'E') layers.add(layer<EmbedLayer>(Embed(&weights.back())));
    if (kind == 'M') layers.add(layer<Middle<HonestMiddle>>(Gate<HonestMiddle>(), Out(&weights.back())));
    if (kind == 'T') layers.add(layer<TrunkHead<HonestHead>>(Square<second_loss, HonestHead>()));
    if (kind == 'L') layers.add(layer<LastHead>(Square<loss, true>()));
  }
  st::checked_tensors tensors;
  host::lanes lanes({}, [](lane) { st::use_one_thread(); });
  executor run(Schedule<M, Policies...>{}, backend{tensors, lanes}, layers,
               sizes{.microbatches = microbatches});
  outcome found;
  try {
    run();
    run();
  } catch (step_error const& error) {
    found.error = error.what();
  }
  for (auto const& each : weights) found.gradients.push_back(each.main_grad());
  return found;
}

} // namespace

TEST_CASE("steps: a lie ends with rank, op, phase and value; honest phases give the bits of every policy",
          "[torch][saves]") {
  outcome const expected = train<GateLayer, true, true, Serial>("EMMTL");
  REQUIRE(expected.error.empty());
  auto check = [&](outcome const& found) {
    CHECK(found.error.empty());
    for (std::size_t i = 0; i < expected.gradients.size(); ++i)
      CHECK(same_bits(found.gradients[i], expected.gradients[i]));
  };
  check(train<GateLayer, true, true, TwoStream1F1B, SplitDW>("EMMTL"));
  check(train<FusedLayer, true, true, Serial>("EMMTL"));
  CHECK_THAT(
      (train<GateLayer, false, true, Serial>("EMMTL").error),
      ContainsSubstring(
          "rank 0: F.attn of layer 1, microbatch 0 failed: phase Gate keeps 'middle', which it writes"));
  CHECK_THAT((train<FusedLayer, false, true, Serial>("EMMTL").error),
             ContainsSubstring("layer 1, microbatch 0 failed: phase Gate keeps 'middle', which it writes"));
  CHECK_THAT((train<GateLayer, true, false, Serial>("EMMTL").error),
             ContainsSubstring(
                 "F.mlp of layer 3, microbatch 0 failed: phase Square keeps 'hidden', which it reads"));
}

namespace {

struct Stages : Blocks<EmbedLayer, GateLayer<true>, LastHead> {};

template <class... Policies> std::vector<at::Tensor> train_stages(std::vector<std::string> const& stages) {
  int const ranks = static_cast<int>(stages.size());
  std::vector<std::vector<at::Tensor>> gradients(stages.size());
  host::group group(ranks);
  host::mailbox<at::Tensor> mailbox(group);
  group.run([&](int rank) {
    st::use_one_thread();
    std::size_t made = 0;
    for (int r = 0; r < rank; ++r) made += stages[static_cast<std::size_t>(r)].size();
    std::deque<st::parameter> weights;
    layer_list<Stages> layers;
    for (char const kind : stages[static_cast<std::size_t>(rank)]) {
      weights.emplace_back("w", random_tensor({6, 6}, at::kDouble, made++));
      if (kind == 'E') layers.add(layer<EmbedLayer>(Embed(&weights.back())));
      if (kind == 'M') layers.add(layer<GateLayer<true>>(Gate<true>(), Out(&weights.back())));
      if (kind == 'L') layers.add(layer<LastHead>(Square<loss, true>()));
    }
    st::checked_tensors tensors;
    host::lanes lanes({.rank = rank, .board = &group.board(), .peers = true, .shake_seed = 5, .shake_us = 50},
                      [](lane) { st::use_one_thread(); });
    host::peers<at::Tensor> peers(mailbox, rank);
    executor run(Schedule<Stages, Policies...>{}, backend{tensors, lanes, peers}, layers,
                 sizes{.microbatches = microbatches, .ranks = ranks, .rank = rank});
    for (int step = 0; step < 5; ++step) run();
    for (auto const& each : weights) gradients[static_cast<std::size_t>(rank)].push_back(each.main_grad());
  });
  std::vector<at::Tensor> all;
  for (auto const& of_rank : gradients) all.insert(all.end(), of_rank.begin(), of_rank.end());
  return all;
}

} // namespace

TEST_CASE("pipeline ranks give the bits of one rank", "[torch][peers]") {
  auto const expected = train_stages<Serial>({"EMML"});
  for (auto const& stages : {std::vector<std::string>{"EM", "ML"}, {"E", "MM", "L"}}) {
    auto const found = train_stages<Serial, OneFOneB>(stages);
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i) CHECK(same_bits(found[i], expected[i]));
  }
}
