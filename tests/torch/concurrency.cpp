#include "bits.hpp"

#include <stretto/adapters/torch.hpp>

#include <catch2/catch_test_macros.hpp>

#include <barrier>
#include <exception>
#include <thread>
#include <vector>

namespace st = stretto::torch;

namespace {

/// A node with weights of both kinds, and its state for several microbatches.
class busy_node {
public:
  explicit busy_node(std::uint64_t seed)
      : up_("up", random_tensor({16, 32}, at::kFloat, seed)),
        bias_("bias", random_tensor({32}, at::kFloat, seed + 1)),
        down_("down", random_tensor({32, 16}, at::kFloat, seed + 2)), flights_(microbatches) {}

  static constexpr int microbatches = 40;

  void forward(st::tensors const& adapter, int m) {
    auto& f = flights_[static_cast<std::size_t>(m)];
    f.leaf = adapter.detach(random_tensor({8, 16}, at::kFloat, static_cast<std::uint64_t>(m)));
    auto const scope = adapter.forward_scope(f.context);
    f.root = st::linear(at::gelu(st::linear(f.leaf, up_) + bias_.value()), down_);
  }
  void input(st::tensors const& adapter, int m) {
    auto& f = flights_[static_cast<std::size_t>(m)];
    auto root_gradient = at::ones_like(f.root);
    adapter.backward_input(f.context, {&f.root, &root_gradient, nullptr, 1, &f.leaf, &f.gradient, 1});
  }
  void weight(st::tensors const& adapter, int m) {
    adapter.backward_weight(flights_[static_cast<std::size_t>(m)].context);
  }
  std::vector<at::Tensor> results() const {
    std::vector<at::Tensor> all{up_.main_grad(), bias_.main_grad(), down_.main_grad()};
    for (auto const& f : flights_) all.push_back(f.gradient);
    return all;
  }

private:
  struct flight {
    st::tensors::context context;
    at::Tensor leaf, root, gradient;
  };
  st::parameter up_, bias_, down_;
  std::vector<flight> flights_;
};

} // namespace

TEST_CASE("nodes on several threads, passes of one node on different threads",
          "[torch][megatron-28][building-blocks-04]") {
  st::use_one_thread();
  constexpr int pairs = 2;
  st::tensors const adapter;

  std::vector<busy_node> alone, together;
  for (std::uint64_t i = 0; i < pairs; ++i) alone.emplace_back(10 * i), together.emplace_back(10 * i);
  for (auto& node : alone)
    for (int m = 0; m < busy_node::microbatches; ++m)
      node.forward(adapter, m), node.input(adapter, m), node.weight(adapter, m);

  // Of each pair of threads, one runs forward of a microbatch while the other runs backward of the one before.
  std::exception_ptr problems[2 * pairs];
  std::vector<std::thread> threads;
  std::barrier turn(2 * pairs);
  for (std::size_t i = 0; i < 2 * pairs; ++i)
    threads.emplace_back([&, i] {
      st::use_one_thread();
      auto& node = together[i / 2];
      for (int m = 0; m <= busy_node::microbatches; ++m) {
        try {
          if (i % 2 == 0 && m < busy_node::microbatches) node.forward(adapter, m);
          if (i % 2 == 1 && m > 0) node.input(adapter, m - 1), node.weight(adapter, m - 1);
        } catch (...) {
          problems[i] = std::current_exception();
        }
        turn.arrive_and_wait();
      }
    });
  for (auto& each : threads) each.join();
  for (auto const& each : problems)
    if (each) std::rethrow_exception(each);

  for (std::size_t i = 0; i < pairs; ++i) {
    auto const expected = alone[i].results();
    auto const found = together[i].results();
    REQUIRE(expected.size() == found.size());
    for (std::size_t k = 0; k < expected.size(); ++k) {
      CAPTURE(i, k);
      CHECK(same_bits(expected[k], found[k]));
    }
  }
}

TEST_CASE("a scope leaves the thread as it found it", "[torch][megatron-a]") {
  st::tensors adapter;
  st::tensors::context outer, inner;
  c10::GradMode::set_enabled(false);
  auto const multithreading = c10::AutogradState::get_tls_state().get_multithreading_enabled();
  {
    auto const first = adapter.forward_scope(outer);
    CHECK(c10::GradMode::is_enabled());
    CHECK_FALSE(c10::AutogradState::get_tls_state().get_multithreading_enabled());
    {
      auto const second = adapter.forward_scope(inner);
      CHECK(st::node_in_progress().context == &inner);
    }
    CHECK(st::node_in_progress().context == &outer);
  }
  CHECK(st::node_in_progress().context == nullptr);
  CHECK_FALSE(c10::GradMode::is_enabled());
  CHECK(c10::AutogradState::get_tls_state().get_multithreading_enabled() == multithreading);
  c10::GradMode::set_enabled(true);
}
