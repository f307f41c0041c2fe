#include <stretto/adapters/sim.hpp>
#include <stretto/block.hpp>

#include <catch2/catch_test_macros.hpp>

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

using namespace stretto;
using sim::numbered, sim::transport, sim::trouble;

namespace {

struct hidden : value {};
struct loss : objective {};

/// A layer of two nodes with a value between them, and the two halves of the same for two ranks.
struct Writer : Phase<attn> {
  using writes = values<hidden>;
  using saves = values<>;
};
struct Reader : Phase<combine> {
  using reads = values<hidden>;
  using writes = values<loss>;
  using saves = values<hidden>;
  static constexpr bool has_weights = true;
};
struct Both : Block<Writer, Detach, Reader> {};
struct Begin : Block<Writer> {};
struct End : Block<Reader> {};
struct Model : Blocks<Both, Begin, End> {};
enum block_number { both, begin, end };
constexpr int hidden_cell = cells::first_root;
constexpr pass F = pass::forward, B = pass::backward, I = pass::backward_input, W = pass::backward_weight;

/// Where microbatch `m` keeps its state.
constexpr int group_of(int m) { return 2 * m; }

op node(block_number block, pass what, int number, int m, lane on, std::initializer_list<int> waits,
        numbered<op> const& before) {
  op o;
  o.block = static_cast<unsigned char>(block), o.what = what, o.node = static_cast<unsigned char>(number);
  o.on = on, o.microbatch = o.slot = m, o.group = group_of(m), o.next_group = group_of(m) + 1;
  for (int w : waits) o.wait[static_cast<int>(before[w].on)] = w;
  return o;
}
op message(pass what, int m, lane on, int peer, std::initializer_list<int> waits,
           numbered<op> const& before) {
  op o = node(begin, what, 0, m, on, waits, before);
  o.peer = static_cast<short>(peer);
  // The chunk of rank 0 ends where the one of rank 1 begins.
  o.group = o.next_group = group_of(m) + (peer == 1 ? 1 : 0);
  return o;
}

sim::program program_of(std::vector<sim::rank_table> const& ranks) {
  sim::program of;
  for (int k = 0; k < Model::count; ++k)
    of.blocks.push_back(*detail::facts_at<Model>(k, std::make_integer_sequence<int, Model::count>{}));
  of.chain = chain_of<Model>::value;
  for (sim::rank_table table : ranks) {
    table.layer_id.push_back(of.ranks.size());
    table.stage.push_back(of.ranks.size());
    of.ranks.push_back(table);
  }
  return of;
}

/// Three microbatches over two lanes. The value goes back on the lane that wrote it, with the backward that waits for all
/// who read it: behind it, and once before it.
sim::program one_rank() {
  sim::rank_table t;
  auto const add = [&t](pass what, int number, int m, lane on, std::initializer_list<int> waits = {}) {
    t.ops.push_back(node(both, what, number, m, on, waits, t.ops));
  };
  add(F, 0, 0, lane::compute); // 0
  add(F, 1, 0, lane::comm, {0}); // 1
  add(F, 0, 1, lane::compute); // 2
  add(F, 1, 1, lane::comm, {2}); // 3
  add(I, 1, 0, lane::comm); // 4
  add(W, 1, 0, lane::comm); // 5
  add(F, 0, 2, lane::compute); // 6
  add(F, 1, 2, lane::comm, {6}); // 7
  add(I, 1, 1, lane::comm); // 8
  add(W, 1, 1, lane::comm); // 9
  add(B, 0, 0, lane::compute, {5}); // 10
  add(B, 0, 1, lane::compute, {9}); // 11
  add(I, 1, 2, lane::comm); // 12
  add(W, 1, 2, lane::comm); // 13
  add(B, 0, 2, lane::compute, {13}); // 14
  for (int m = 0; m < 3; ++m)
    t.gives_back.push_back({m == 2 ? 14 : 10 + m, group_of(m), hidden_cell, m == 1});
  return program_of({t});
}

/// The same over two ranks, two microbatches.
sim::program two_ranks() {
  sim::rank_table first, last;
  auto const node_of = [](sim::rank_table& t, block_number block, pass what, int m,
                          std::initializer_list<int> waits = {}) {
    t.ops.push_back(node(block, what, 0, m, lane::compute, waits, t.ops));
  };
  auto const message_of = [](sim::rank_table& t, pass what, int m, lane on,
                             std::initializer_list<int> waits = {}) {
    int const peer = on == lane::send_higher || on == lane::receive_higher ? 1 : 0;
    t.ops.push_back(message(what, m, on, peer, waits, t.ops));
  };
  for (int m = 0; m < 2; ++m) {
    node_of(first, begin, F, m); // 0, 2
    message_of(first, F, m, lane::send_higher, {2 * m}); // 1, 3
  }
  for (int m = 0; m < 2; ++m) {
    message_of(first, B, m, lane::receive_higher); // 4, 6
    node_of(first, begin, B, m, {4 + 2 * m}); // 5, 7
    message_of(last, F, m, lane::receive_lower); // 0, 4
    node_of(last, end, F, m, {4 * m}); // 1, 5
    node_of(last, end, B, m); // 2, 6
    message_of(last, B, m, lane::send_lower, {4 * m + 2}); // 3, 7
  }
  return program_of({first, last});
}

/// Two ranks whose combines are one communication each.
sim::program expert_group() {
  sim::program of = one_rank();
  of.ranks.push_back(of.ranks[0]);
  of.expert_groups.push_back(numbered<int>(2, 0));
  of.expert_groups[0][1] = 1;
  return of;
}

numbered<sim::final_value> expected(sim::program const& of, transport how, sim::senses const& sees = {}) {
  sim::outcome const right = sim::machine(of, how, sees).run();
  REQUIRE(right.what == trouble::none);
  return right.values;
}

void erase(numbered<op>& ops, int row) {
  numbered<op> kept;
  for (int i = 0; i < ops.size(); ++i) {
    if (i == row) continue;
    op o = ops[i];
    for (int& w : o.wait) w = w == row ? -1 : w > row ? w - 1 : w;
    kept.push_back(o);
  }
  ops = kept;
}

/// A program with one fault, and what it looks like.
struct subject {
  std::string name;
  sim::program right, wrong;
  std::vector<transport> under;
  std::vector<trouble> shows;

  sim::finding found(transport how, sim::senses const& sees = {}, sim::adversary const& by = {}) const {
    sim::machine machine(wrong, how, sees);
    return attack(machine, expected(right, how, sees), by);
  }
};

std::vector<transport> const lone = {transport::any_time},
                             wired = {transport::rendezvous, transport::buffered};

std::vector<subject> subjects() {
  std::vector<subject> all;
  auto const add = [&all](char const* name, sim::program const& right, std::vector<transport> const& under,
                          std::vector<trouble> const& shows,
                          std::function<void(sim::program&)> const& spoil) {
    sim::program wrong = right;
    spoil(wrong);
    all.push_back({name, right, wrong, under, shows});
  };
  auto const alone = [&](char const* name, std::vector<trouble> const& shows,
                         std::function<void(sim::rank_table&)> const& spoil) {
    add(name, one_rank(), lone, shows, [&](sim::program& p) { spoil(p.ranks[0]); });
  };
  using rank = sim::rank_table;
  alone("a read without a wait", {trouble::nothing_there}, [](rank& t) { t.ops[3].wait[0] = -1; });
  alone("a wait for what is issued later", {trouble::nothing_there}, [](rank& t) {
    std::swap(t.ops[2], t.ops[3]);
    t.ops[2].wait[0] = 3;
  });
  alone("a weight gradient before its input gradient", {trouble::nothing_there},
        [](rank& t) { std::swap(t.ops[8], t.ops[9]); });
  alone("a weight gradient that never runs", {trouble::state_left}, [](rank& t) {
    erase(t.ops, 9);
    for (sim::freed& f : t.gives_back) --f.row;
  });
  alone("a weight gradient that runs twice", {trouble::nothing_there}, [](rank& t) {
    op again = t.ops[13];
    t.ops.push_back(again);
  });
  alone("weight gradients in another order", {trouble::other_values}, [](rank& t) {
    // Both are behind their inputs, and both have run before anything waits for them.
    op const first = t.ops[5];
    t.ops[5] = t.ops[8], t.ops[8] = t.ops[9], t.ops[9] = first;
    t.ops[10].wait[1] = t.ops[11].wait[1] = 9;
  });
  alone("a forward that runs twice", {trouble::state_overwritten}, [](rank& t) {
    op const again = t.ops[2];
    for (op& o : t.ops)
      for (int& w : o.wait) w += w >= 2 ? 1 : 0;
    numbered<op> longer;
    for (int i = 0; i < t.ops.size(); ++i) {
      longer.push_back(t.ops[i]);
      if (i == 2) longer.push_back(again);
    }
    t.ops = longer;
    for (sim::freed& f : t.gives_back) ++f.row;
  });
  alone("a slot that is taken over too early", {trouble::state_overwritten}, [](rank& t) {
    for (op& o : t.ops)
      if (o.microbatch == 2) o.group = group_of(0), o.next_group = group_of(0) + 1;
    t.gives_back[2].group = group_of(0);
  });
  alone("storage that goes back at once", {trouble::given_back}, [](rank& t) { t.gives_back[0].row = 0; });
  alone("storage that goes back before another lane has read it", {trouble::given_back},
        [](rank& t) { t.gives_back[2].row = 10; });
  alone("storage that goes back before the op that reads it last", {trouble::given_back}, [](rank& t) {
    t.gives_back[0] = {5, group_of(0), hidden_cell, true};
  });
  alone("storage that another lane gives back", {trouble::other_values, trouble::given_back},
        [](rank& t) { t.gives_back[0].row = 5; });

  add("messages that change places", two_ranks(), wired, {trouble::other_values}, [](sim::program& p) {
    numbered<op>& ops = p.ranks[0].ops;
    std::swap(ops[1], ops[3]);
    std::swap(ops[0], ops[2]);
  });
  add("a message that is not sent", two_ranks(), wired, {trouble::hang},
      [](sim::program& p) { erase(p.ranks[0].ops, 3); });
  add("a message that is not received", two_ranks(), wired, {trouble::hang, trouble::unmatched},
      [](sim::program& p) { erase(p.ranks[0].ops, 6); });
  add("a circle of messages", two_ranks(), {transport::rendezvous, transport::buffered, transport::named},
      {trouble::hang}, [](sim::program& p) {
        numbered<op>& ops = p.ranks[0].ops;
        // The gradient is to come before the activation leaves.
        op const gradient = ops[4];
        for (int i = 4; i > 1; --i) ops[i] = ops[i - 1];
        ops[1] = gradient;
        for (op& o : ops)
          for (int& w : o.wait) w = w == 4 ? 1 : w >= 1 && w < 4 ? w + 1 : w;
        ops[2].wait[static_cast<int>(lane::receive_higher)] = 1;
      });
  add("sends that wait for each other's receives", two_ranks(), {transport::rendezvous}, {trouble::hang},
      [](sim::program& p) {
        p.ranks[0].ops[4].wait[static_cast<int>(lane::send_higher)] = 3;
        p.ranks[1].ops[4].wait[static_cast<int>(lane::send_lower)] = 3;
      });
  add("collectives in another order", expert_group(), lone, {trouble::unmatched}, [](sim::program& p) {
    for (op& o : p.ranks[1].ops)
      if (o.microbatch < 2) o.microbatch = 1 - o.microbatch;
  });
  add("a collective that one rank leaves out", expert_group(), lone, {trouble::hang},
      [](sim::program& p) { erase(p.ranks[1].ops, 12); });
  return all;
}

} // namespace

TEST_CASE("programs without a fault give the same values in every order", "[sim]") {
  for (sim::program const& right : {one_rank(), two_ranks(), expert_group()})
    for (transport const how :
         {transport::rendezvous, transport::buffered, transport::named, transport::any_time}) {
      sim::machine machine(right, how);
      sim::finding const found = attack(machine, expected(right, how));
      CHECK_FALSE(found);
      CHECK(found.runs > 1);
    }
  sim::program const small = two_ranks();
  sim::machine machine(small, transport::rendezvous);
  CHECK(attack(machine, expected(small, transport::rendezvous)).every_order);
}

TEST_CASE("the simulator catches each fault", "[sim]") {
  for (subject const& one : subjects())
    for (transport const how : one.under) {
      sim::finding const found = one.found(how);
      INFO(one.name << ": " << name_of(found.wrong.what));
      CHECK(std::find(one.shows.begin(), one.shows.end(), found.wrong.what) != one.shows.end());
      // As well where not every order is run.
      CHECK(one.found(how, {}, {.most_orders = 0}));
    }
  for (subject const& one : subjects())
    if (one.name == "sends that wait for each other's receives") CHECK_FALSE(one.found(transport::buffered));
}

TEST_CASE("a simulator without one of its senses lets a fault pass", "[sim]") {
  auto const caught = [](sim::senses const& sees, sim::adversary const& by = {}) {
    std::vector<std::string> names;
    for (subject const& one : subjects())
      if (one.found(one.under[0], sees, by)) names.push_back(one.name);
    return names;
  };
  auto const misses = [](std::vector<std::string> const& names, char const* name) {
    return std::find(names.begin(), names.end(), name) == names.end();
  };
  std::size_t const all = subjects().size();
  CHECK(caught({}).size() == all);
  CHECK(misses(caught({.poison = false}), "storage that goes back before another lane has read it"));
  CHECK(misses(caught({.reuse = false}), "storage that another lane gives back"));
  CHECK(misses(caught({.order_of_sums = false}), "weight gradients in another order"));
  CHECK(misses(caught({.state = false}), "a forward that runs twice"));
  // Without the orders: what a run as issued shows.
  std::vector<std::string> in_order;
  for (subject const& one : subjects()) {
    sim::machine machine(one.wrong, one.under[0]);
    sim::outcome const found = machine.run();
    if (found.what != trouble::none || found.values != expected(one.right, one.under[0]))
      in_order.push_back(one.name);
  }
  CHECK(misses(in_order, "a read without a wait"));
  CHECK(misses(in_order, "storage that another lane gives back"));
  CHECK(in_order.size() < all);
}
