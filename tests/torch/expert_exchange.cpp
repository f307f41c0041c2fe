#include "bits.hpp"

#include <stretto/adapters/host/group.hpp>
#include <stretto/adapters/host/lanes.hpp>
#include <stretto/adapters/torch.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <torch/csrc/autograd/autograd.h>

#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace st = stretto::torch;
namespace ag = ::torch::autograd;
namespace host = stretto::host;
using exchange = st::expert_parallel<host::communicator>;

static_assert(stretto::expert_communicator<exchange>);

namespace {

constexpr int channels = 8;
constexpr int choices = 2;

/// Who wants which experts: [tokens of the rank, choices].
using ids_of_rank = std::function<at::Tensor(int rank, int experts)>;

at::Tensor random_ids(int rank, int experts) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(40 + rank));
  return at::randint(experts, {11 + 3 * rank, choices}, generator, at::kLong);
}
at::Tensor all_to_the_first(int rank, int) { return at::zeros({5 + rank, choices}, at::kLong); }
at::Tensor nothing_on_rank_0(int rank, int experts) {
  return rank == 0 ? at::empty({0, choices}, at::kLong) : random_ids(rank, experts);
}
at::Tensor nothing_at_all(int, int) { return at::empty({0, choices}, at::kLong); }

struct result {
  at::Tensor output, input_gradient, weight_gradient;
};

at::Tensor input_of(int rank, std::int64_t tokens) {
  return random_tensor({tokens, channels}, at::kDouble, static_cast<std::uint64_t>(rank))
      .set_requires_grad(true);
}
at::Tensor root_gradient_of(int rank, std::int64_t tokens) {
  return random_tensor({tokens, choices, channels}, at::kDouble, static_cast<std::uint64_t>(70 + rank));
}
at::Tensor expert_weights(int experts) {
  return random_tensor({experts, channels, channels}, at::kDouble, 99);
}

result through_the_exchange(host::communicator rows, int local_experts, at::Tensor const& ids) {
  exchange comm(rows, local_experts);
  auto const experts = local_experts * comm.ranks();
  auto const x = input_of(comm.rank(), ids.size(0));
  st::parameter weight("w",
                       expert_weights(experts).narrow(0, comm.rank() * local_experts, local_experts).clone());

  auto const sorted = st::order_by_expert(ids, experts);
  exchange::routing const where{{sorted.rows.begin(), sorted.rows.end()}};
  exchange::handle made;
  auto const arrived =
      st::dispatch_rows(comm, st::permute_rows(x, sorted.order, sorted.inverse, choices), where, made);
  auto const back = st::combine_rows(comm, st::expert_linear(arrived, made.rows(), weight), made);
  auto const output = st::permute_rows(back, sorted.inverse, sorted.order).view({-1, choices, channels});

  auto const gradients = ag::grad({output}, {x, weight.leaf()}, {root_gradient_of(comm.rank(), ids.size(0))});
  return {output.detach(), gradients[0], gradients[1]};
}

} // namespace

TEST_CASE("experts on several ranks agree with all experts at hand", "[torch]") {
  auto const ranks = GENERATE(1, 2, 3);
  auto const local_experts = GENERATE(1, 2, 3);
  auto const which = GENERATE(0, 1, 2, 3);
  ids_of_rank const patterns[] = {random_ids, all_to_the_first, nothing_on_rank_0, nothing_at_all};
  auto const& ids_of = patterns[which];
  CAPTURE(ranks, local_experts, which);
  int const experts = ranks * local_experts;

  std::vector<result> found(static_cast<std::size_t>(ranks));
  host::group group(ranks);
  group.run([&](int rank) {
    st::use_one_thread();
    found[static_cast<std::size_t>(rank)] =
        through_the_exchange(group.communicator(rank), local_experts, ids_of(rank, experts));
  });

  auto const weights = expert_weights(experts).set_requires_grad(true);
  auto weight_gradient = at::zeros_like(weights, weights.options().requires_grad(false));
  for (int rank = 0; rank < ranks; ++rank) {
    auto const ids = ids_of(rank, experts);
    auto const x = input_of(rank, ids.size(0));
    auto const per_choice = weights.index_select(0, ids.flatten());
    auto const rows = x.unsqueeze(1).expand({-1, choices, -1}).reshape({-1, 1, channels});
    auto const output = rows.bmm(per_choice).view({-1, choices, channels});
    auto const gradients = ag::grad({output}, {x, weights}, {root_gradient_of(rank, ids.size(0))});
    auto const& ours = found[static_cast<std::size_t>(rank)];
    CHECK(at::allclose(ours.output, output, 1e-12, 1e-12));
    CHECK(at::allclose(ours.input_gradient, gradients[0], 1e-12, 1e-12));
    weight_gradient += gradients[1];
  }
  for (int rank = 0; rank < ranks; ++rank) {
    auto const& ours = found[static_cast<std::size_t>(rank)].weight_gradient;
    REQUIRE(ours.defined());
    CHECK(at::allclose(ours, weight_gradient.narrow(0, rank * local_experts, local_experts), 1e-12, 1e-12));
  }
}

namespace {

struct counted_rows : host::communicator {
  explicit counted_rows(host::communicator of) : host::communicator(std::move(of)) {}
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t row_bytes) {
    bytes.push_back(row_bytes);
    host::communicator::all_to_all(send, send_rows, receive, receive_rows, row_bytes);
  }
  std::vector<std::size_t> bytes; ///< of a row, by call
};

} // namespace

TEST_CASE("of what lies beside rows the gradient goes back with theirs, and nothing goes forth", "[torch]") {
  auto const ranks = GENERATE(1, 2, 3);
  auto const which = GENERATE(0, 1, 2, 3);
  ids_of_rank const patterns[] = {random_ids, all_to_the_first, nothing_on_rank_0, nothing_at_all};
  CAPTURE(ranks, which);
  struct gradients {
    at::Tensor x, beside, of_rows, expected;
  };
  std::vector<gradients> found(static_cast<std::size_t>(ranks));
  host::group group(ranks);
  group.run([&](int rank) {
    st::use_one_thread();
    auto const count = patterns[which](rank, 2 * ranks).numel();
    auto const sorted = st::order_by_expert(patterns[which](rank, 2 * ranks), 2 * ranks);
    counted_rows rows(group.communicator(rank));
    st::expert_parallel<counted_rows> comm(rows, 2);
    decltype(comm)::handle made;
    decltype(comm)::routing const where{{sorted.rows.begin(), sorted.rows.end()}};
    auto const x = random_tensor({count, channels}, at::kFloat, static_cast<std::uint64_t>(rank))
                       .set_requires_grad(true);
    auto const beside = at::ones({count, 1}, at::kDouble).set_requires_grad(true);
    auto const [arrived, unread] = st::dispatch_rows(comm, x, beside, where, made);
    auto const forth = rows.bytes.size();
    auto const from = arrived.detach();
    if (unread.sizes() != at::IntArrayRef{from.size(0), 1} || unread.scalar_type() != at::kDouble ||
        unread.storage().nbytes() > sizeof(double))
      throw std::logic_error("what stands for the numbers is not as one number of each row");
    auto const back =
        ag::grad({arrived, unread}, {x, beside}, {2 * from, from.select(1, 3).unsqueeze(1).to(at::kDouble)});
    // Counts and rows; rows and numbers.
    if (forth != 2 || rows.bytes.size() != 4 || rows.bytes[2] != channels * 4 || rows.bytes[3] != 8)
      throw std::logic_error("other calls than rows forth and both gradients back");
    found[static_cast<std::size_t>(rank)] = {x.detach(), back[1], back[0],
                                             x.detach().select(1, 3).unsqueeze(1).to(at::kDouble)};
  });
  for (auto const& each : found) {
    CHECK(same_bits(each.of_rows, 2 * each.x));
    CHECK(same_bits(each.beside, each.expected));
  }
}

TEST_CASE("the exchange moves every type of row", "[torch]") {
  auto const type = GENERATE(at::kFloat, at::kBFloat16, at::kDouble);
  host::group group(2);
  std::vector<at::Tensor> arrived(2);
  group.run([&](int rank) {
    auto rows = group.communicator(rank);
    exchange comm(rows, 1);
    exchange::handle made;
    auto const mine = at::full({3, 5}, rank + 1, type);
    arrived[static_cast<std::size_t>(rank)] =
        comm.dispatch(mine, {{rank == 0 ? std::vector<int>{1, 2} : std::vector<int>{0, 3}}}, made);
  });
  CHECK(same_bits(arrived[0], at::full({1, 5}, 1, type)));
  CHECK(same_bits(arrived[1], at::cat({at::full({2, 5}, 1, type), at::full({3, 5}, 2, type)})));
}

TEST_CASE("a routing that does not fit its rows is refused", "[torch]") {
  host::group group(1);
  auto rows = group.communicator(0);
  exchange comm(rows, 2);
  exchange::handle made;
  auto const two = at::ones({2, 3});
  CHECK_THROWS_AS(comm.dispatch(two, {{1, 2}}, made), std::invalid_argument);
  CHECK_THROWS_AS(comm.dispatch(two, {{2}}, made), std::invalid_argument);
  CHECK_THROWS_AS(exchange(rows, 0), std::invalid_argument);
}

TEST_CASE("the handle of another microbatch is refused with the places of both", "[torch]") {
  host::group group(1);
  auto rows = group.communicator(0);
  exchange comm(rows, 2);
  host::lanes lanes;
  exchange::handle handles[2];
  auto const x = at::ones({3, channels});
  auto const issue = [&](stretto::phase_kind phase, int microbatch, auto task) {
    lanes.run(stretto::lane::comm, {phase, stretto::pass::forward, stretto::lane::comm, 4, microbatch}, task);
  };
  for (int m = 0; m < 2; ++m) issue(stretto::dispatch, m, [&, m] { comm.dispatch(x, {{1, 2}}, handles[m]); });
  issue(stretto::combine, 1, [&] { comm.combine(x, handles[1]); });
  lanes.drain();
  // With the same number of rows nothing else would show it.
  issue(stretto::combine, 1, [&] { comm.combine(x, handles[0]); });
  CHECK_THROWS_WITH(lanes.drain(),
                    Catch::Matchers::ContainsSubstring(
                        "a handle of layer 4, microbatch 0 is used for layer 4, microbatch 1"));
}

TEST_CASE("ids are grouped by expert, in order within one", "[torch]") {
  auto const ids = at::tensor({2, 0, 2, 1, 0, 2}, at::kLong).view({3, 2});
  auto const grouped = st::order_by_expert(ids, 4);
  CHECK(grouped.rows == std::vector<std::int64_t>{2, 1, 3, 0});
  CHECK(at::equal(grouped.order, at::tensor({1, 4, 3, 0, 2, 5}, at::kLong)));
  CHECK(at::equal(grouped.order.index_select(0, grouped.inverse), at::arange(6)));
  CHECK_THROWS_AS(st::order_by_expert(ids, 2), std::out_of_range);

  auto const apart = at::tensor({0, 3, 1, 3, 2, 3}, at::kLong).view({3, 2}).narrow(1, 0, 1);
  CHECK(st::route_by_expert(apart, 4).rows.read<int>() == std::vector<int>{1, 1, 1, 0});
}

namespace {

/// Puts parts where they belong by itself, or says that it does not.
class part_mover : public host::communicator {
public:
  part_mover(host::communicator of, bool moves) : host::communicator(std::move(of)), moves_(moves) {}

  bool moves_parts() const { return moves_; }
  void all_to_all_parts(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                        std::size_t row_bytes, int parts, bool sorted) {
    ++calls;
    auto const from = places(send_rows, row_bytes, parts, !sorted),
               to = places(receive_rows, row_bytes, parts, sorted);
    std::vector<char> out(from.bytes), in(to.bytes);
    std::vector<int> out_rows(static_cast<std::size_t>(ranks())), in_rows(out_rows);
    auto const each_block = [&](auto const& visit) {
      std::size_t sent = 0, received = 0;
      for (std::size_t block = 0; block < from.begins.size(); ++block)
        visit(block, sent, received), sent += from.sizes[block], received += to.sizes[block];
    };
    each_block([&](std::size_t block, std::size_t at, std::size_t) {
      std::memcpy(out.data() + at, static_cast<char const*>(send) + from.begins[block], from.sizes[block]);
      out_rows[block / static_cast<std::size_t>(parts)] += send_rows[block];
      in_rows[block / static_cast<std::size_t>(parts)] += receive_rows[block];
    });
    all_to_all(out.data(), out_rows.data(), in.data(), in_rows.data(), row_bytes);
    each_block([&](std::size_t block, std::size_t, std::size_t at) {
      std::memcpy(static_cast<char*>(receive) + to.begins[block], in.data() + at, to.sizes[block]);
    });
  }
  int calls = 0;

private:
  struct placed {
    std::vector<std::size_t> begins, sizes;
    std::size_t bytes = 0;
  };
  placed places(int const* rows, std::size_t row_bytes, int parts, bool by_part) const {
    auto const all = static_cast<std::size_t>(ranks()), of_rank = static_cast<std::size_t>(parts);
    placed made{std::vector<std::size_t>(all * of_rank), std::vector<std::size_t>(all * of_rank)};
    for (std::size_t outer = 0; outer < (by_part ? of_rank : all); ++outer)
      for (std::size_t inner = 0; inner < (by_part ? all : of_rank); ++inner) {
        auto const block = by_part ? inner * of_rank + outer : outer * of_rank + inner;
        made.begins[block] = made.bytes;
        made.bytes += made.sizes[block] = static_cast<std::size_t>(rows[block]) * row_bytes;
      }
    return made;
  }
  bool moves_;
};
static_assert(st::part_exchange<part_mover> && !st::part_exchange<host::communicator>);

} // namespace

TEST_CASE("parts come by part and then by rank, whoever sorts them, and go back", "[torch]") {
  constexpr int ranks = 3;
  auto const parts = GENERATE(1, 2, 4);
  auto const moves = GENERATE(true, false);
  CAPTURE(parts, moves);
  auto const rows_for = [](int from, int to, int part) { return (3 * from + 5 * to + 2 * part) % 4; };
  std::vector<at::Tensor> arrived(ranks), expected(ranks), back(ranks), sent(ranks);
  host::group group(ranks);
  group.run([&](int rank) {
    auto const me = static_cast<std::size_t>(rank);
    part_mover over(group.communicator(rank), moves);
    std::vector<int> to, from;
    std::vector<at::Tensor> out{at::empty({0, 2})}, in{at::empty({0, 2})};
    auto const block = [&](int source, int target, int part) {
      return at::full({rows_for(source, target, part), 2}, 100 * source + 10 * target + part);
    };
    for (int other = 0; other < ranks; ++other)
      for (int part = 0; part < parts; ++part) {
        to.push_back(rows_for(rank, other, part));
        from.push_back(rows_for(other, rank, part));
        out.push_back(block(rank, other, part));
      }
    for (int part = 0; part < parts; ++part)
      for (int other = 0; other < ranks; ++other) in.push_back(block(other, rank, part));
    sent[me] = at::cat(out).to(at::kFloat);
    expected[me] = at::cat(in).to(at::kFloat);
    arrived[me] = st::exchange_parts(over, sent[me], to, from, true, "test");
    back[me] = st::exchange_parts(over, arrived[me], from, to, false, "test");
    if (over.calls != (moves ? 2 : 0)) throw std::logic_error("parts went another way");
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    CHECK(same_bits(arrived[rank], expected[rank]));
    CHECK(same_bits(back[rank], sent[rank]));
  }
}

TEST_CASE("rows that are more or fewer than a handle says are refused, sorted or not, whoever sorts them",
          "[torch]") {
  auto const moves = GENERATE(true, false);
  auto const sorted = GENERATE(true, false);
  auto const count = GENERATE(7, 9);
  CAPTURE(moves, sorted, count);
  std::vector<std::string> told(2);
  host::group group(2);
  group.run([&](int rank) {
    part_mover over(group.communicator(rank), moves);
    std::vector<int> const two(4, 2);
    try {
      st::exchange_parts(over, at::ones({count, 3}), two, two, sorted, "test");
    } catch (std::invalid_argument const& problem) {
      told[static_cast<std::size_t>(rank)] = problem.what();
    }
  });
  for (auto const& each : told) CHECK(each == "test: " + std::to_string(count) + " rows for a handle of 8");
}

TEST_CASE("rows cannot be grouped by no expert, nor sent by counts that are not for every rank", "[torch]") {
  auto const of_none = [](int experts) {
    return Catch::Matchers::Equals("rows are grouped by " + std::to_string(experts) +
                                   " experts; there must be one at least");
  };
  auto const ids = at::tensor({0, 1}, at::kLong), nobody = at::empty({0}, at::kLong);
  for (int const experts : {0, -1}) {
    CHECK_THROWS_WITH(st::order_by_expert(ids, experts), of_none(experts));
    CHECK_THROWS_WITH(st::order_by_expert(nobody, experts), of_none(experts));
    CHECK_THROWS_WITH(st::route_by_expert(ids, experts), of_none(experts));
    // Before anything is asked of the device that they lie on.
    CHECK_THROWS_WITH(st::route_by_expert(ids.to(at::kMeta), experts), of_none(experts));
  }
  host::group group(1);
  auto over = group.communicator(0);
  CHECK_THROWS_WITH(
      st::exchange_parts(over, at::ones({6, 2}), {1, 2, 3}, {1, 2}, true, "test"),
      Catch::Matchers::Equals("test: 3 counts of rows to send and 2 to receive are not as many for each of "
                              "1 ranks"));
}
