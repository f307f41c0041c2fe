#include "bits.hpp"

#include <stretto/adapters/host/group.hpp>
#include <stretto/adapters/host/lanes.hpp>
#include <stretto/adapters/torch.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <torch/csrc/autograd/autograd.h>

#include <limits>
#include <vector>

namespace st = stretto::torch;
namespace ag = ::torch::autograd;
namespace host = stretto::host;
using exchange = st::fixed_parallel<host::communicator>;

static_assert(stretto::expert_communicator<exchange>);
static_assert(exchange::counts == stretto::counts_mode::static_capacity);

namespace {

struct capturable_rows : host::communicator {
  static constexpr bool capturable = true;
};
static_assert(st::fixed_parallel<capturable_rows>::capturable && !exchange::capturable);

constexpr int channels = 6;

at::Tensor numbers(at::IntArrayRef sizes, int seed) {
  return random_tensor(sizes, at::kDouble, static_cast<std::uint64_t>(seed));
}
at::Tensor whole(std::vector<std::int64_t> const& values) { return at::tensor(values, at::kLong); }

struct result {
  at::Tensor output, input_gradient, weight_gradient, use;
};

/// Every token to its experts on whatever rank, times the expert's matrix, and back.
result through_slots(host::communicator rows, int local_experts, int capacity, at::Tensor const& ids,
                     at::Tensor const& weights) {
  exchange comm(rows, local_experts, capacity);
  auto const x = numbers({ids.size(0), channels}, comm.rank()).set_requires_grad(true);
  st::parameter weight("w", weights.narrow(0, comm.rank() * local_experts, local_experts).clone());
  auto const use = at::zeros({2}, at::kLong);
  auto const slots = st::route_to_slots(ids, local_experts * comm.ranks(), capacity, use);
  exchange::handle made;
  auto const arrived = st::dispatch_rows(comm, st::rows_to_slots(x, slots, ids.size(1)), {}, made);
  auto const back = st::combine_rows(comm, st::expert_linear(arrived, comm.rows(), weight), made);
  auto const output = st::rows_from_slots(back, slots);
  auto const gradients = ag::grad({output}, {x, weight.leaf()}, {numbers(output.sizes(), 70 + comm.rank())});
  return {output.detach(), gradients[0], gradients[1], use};
}

/// Whether choice c comes among the first `capacity` of its expert.
at::Tensor found_slots(at::Tensor const& ids, int experts, int capacity) {
  auto const flat = ids.flatten();
  auto kept = at::zeros({flat.numel()}, at::kDouble);
  std::vector<int> used(static_cast<std::size_t>(experts));
  for (std::int64_t i = 0; i < flat.numel(); ++i)
    if (used[static_cast<std::size_t>(flat[i].item<std::int64_t>())]++ < capacity) kept[i] = 1;
  return kept;
}

} // namespace

TEST_CASE("choices fill the slots of their experts in order", "[torch]") {
  auto const ids = whole({2, 0, 2, 1, 0, 2}).view({3, 2});
  auto const use = at::zeros({2}, at::kLong);
  auto const slots = st::route_to_slots(ids, 4, 3, use);
  CHECK(at::equal(slots.place, whole({6, 0, 7, 3, 1, 8})));
  CHECK_FALSE(slots.lost.any().item<bool>());
  CHECK(at::equal(slots.empty.flatten().logical_not().nonzero().flatten(), whole({0, 1, 3, 6, 7, 8})));
  CHECK(at::equal(slots.source.index_select(0, slots.place), at::arange(6)));
  CHECK(at::equal(use, whole({0, 3})));
}

TEST_CASE("choices of a full expert are counted, stay in bounds and are zeros", "[torch]") {
  auto const ids = whole({2, 0, 2, 1, 0, 2, 2, 3}).view({4, 2});
  auto const use = whole({5, 1});
  auto const slots = st::route_to_slots(ids, 4, 2, use);
  CHECK(at::equal(use, whole({7, 4})));
  st::route_to_slots(ids, 4, 4, use);
  CHECK(at::equal(use, whole({7, 4})));
  CHECK(at::equal(slots.lost.flatten().nonzero().flatten(), whole({5, 6})));
  CHECK((slots.place.ge(0) & slots.place.lt(8)).all().item<bool>());
  CHECK((slots.source.ge(0) & slots.source.lt(8)).all().item<bool>());

  auto const x = numbers({4, channels}, 1).set_requires_grad(true);
  auto const in_slots = st::rows_to_slots(x, slots, 2);
  CHECK(same_bits(in_slots[4], x[0].detach()));
  CHECK(same_bits(in_slots[3], at::zeros({channels}, at::kDouble)));
  auto const back = st::rows_from_slots(in_slots, slots);
  auto const kept = found_slots(ids, 4, 2).unsqueeze(1);
  CHECK(at::equal(back, x.repeat_interleave(2, 0) * kept));
  auto const dy = numbers({8, channels}, 2);
  auto const gradient = ag::grad({back}, {x}, {dy})[0];
  CHECK(at::allclose(gradient, (dy * kept).view({4, 2, channels}).sum(1), 1e-14, 1e-14));
}

TEST_CASE("a NaN stays with its own token", "[torch]") {
  auto x = at::ones({3, channels}, at::kDouble);
  x[1].fill_(std::numeric_limits<double>::quiet_NaN());
  auto const slots = st::route_to_slots(whole({0, 0, 0}).view({3, 1}), 2, 2);
  auto const back = st::rows_from_slots(st::rows_to_slots(x, slots), slots);
  CHECK(at::equal(back.isnan().any(1), whole({0, 1, 0}).to(at::kBool)));
  CHECK(at::equal(back[2], at::zeros({channels}, at::kDouble)));
}

TEST_CASE("experts with slots agree with all experts at hand", "[torch]") {
  auto const ranks = GENERATE(1, 2, 3);
  auto const local_experts = GENERATE(1, 2);
  auto const capacity = GENERATE(1, 4, 20);
  auto const tokens = GENERATE(0, 11);
  CAPTURE(ranks, local_experts, capacity, tokens);
  int const experts = ranks * local_experts;
  auto const weights = numbers({experts, channels, channels}, 99);
  auto const ids_of = [&](int rank) {
    auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(40 + rank));
    return at::randint(experts, {rank == 0 ? tokens : 9, 2}, generator, at::kLong);
  };
  std::vector<result> found(static_cast<std::size_t>(ranks));
  host::group group(ranks);
  group.run([&](int rank) {
    st::use_one_thread();
    found[static_cast<std::size_t>(rank)] =
        through_slots(group.communicator(rank), local_experts, capacity, ids_of(rank), weights);
  });

  auto weight_gradient = at::zeros_like(weights);
  for (int rank = 0; rank < ranks; ++rank) {
    auto const ids = ids_of(rank);
    auto const kept = found_slots(ids, experts, capacity);
    auto const& ours = found[static_cast<std::size_t>(rank)];
    CHECK(ours.use[0].item<std::int64_t>() == kept.numel() - kept.sum().item<std::int64_t>());
    auto const x = numbers({ids.size(0), channels}, rank).set_requires_grad(true);
    auto const all = weights.clone().set_requires_grad(true);
    auto const rows = x.unsqueeze(1).expand({-1, 2, -1}).reshape({-1, 1, channels});
    auto const output = rows.bmm(all.index_select(0, ids.flatten())).view({-1, channels}) * kept.unsqueeze(1);
    auto const gradients = ag::grad({output}, {x, all}, {numbers(output.sizes(), 70 + rank)});
    CHECK(at::allclose(ours.output, output, 1e-12, 1e-12));
    CHECK(at::allclose(ours.input_gradient, gradients[0], 1e-12, 1e-12));
    weight_gradient += gradients[1];
  }
  for (int rank = 0; rank < ranks; ++rank)
    CHECK(at::allclose(found[static_cast<std::size_t>(rank)].weight_gradient,
                       weight_gradient.narrow(0, rank * local_experts, local_experts), 1e-12, 1e-12));
}

TEST_CASE("what does not fit slots is refused", "[torch]") {
  auto const ids = whole({0, 1});
  CHECK_THROWS_AS(st::route_to_slots(ids, 2, 0), std::invalid_argument);
  CHECK_THROWS_AS(st::route_to_slots(ids, 1, 2), std::out_of_range);
  CHECK_THROWS_AS(st::route_to_slots(whole({-1, 0}), 2, 2), std::out_of_range);
  host::group group(1);
  auto rows = group.communicator(0);
  CHECK_THROWS_AS(exchange(rows, 2, 0), std::invalid_argument);
  CHECK_THROWS_AS(exchange(rows, 0, 2), std::invalid_argument);
  exchange comm(rows, 2, 3);
  CHECK(comm.rows() == std::vector<std::int64_t>{3, 3});
  exchange::handle handles[2];
  CHECK_THROWS_AS(comm.dispatch(at::ones({5, 2}), {}, handles[0]), std::invalid_argument);

  host::lanes lanes;
  auto const x = at::ones({6, 2});
  auto const issue = [&](stretto::phase_kind phase, int microbatch, auto task) {
    lanes.run(stretto::lane::comm, {phase, stretto::pass::forward, stretto::lane::comm, 4, microbatch}, task);
  };
  for (int m = 0; m < 2; ++m) issue(stretto::dispatch, m, [&, m] { comm.dispatch(x, {}, handles[m]); });
  lanes.drain();
  issue(stretto::combine, 1, [&] { comm.combine(x, handles[0]); });
  CHECK_THROWS_WITH(lanes.drain(),
                    Catch::Matchers::ContainsSubstring(
                        "a handle of layer 4, microbatch 0 is used for layer 4, microbatch 1"));
}
