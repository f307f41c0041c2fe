#include "support/toy_rows.hpp"

#include <catch2/catch_test_macros.hpp>

#include <random>

using namespace stretto;
using toy::Model;
using toy::OddModel;

namespace {

/// Every table of a schedule's bodies.
template <class S, class F, int... K> void for_each_body_of(F&& f, std::integer_sequence<int, K...>) {
  constexpr int n = S::model::count;
  auto const one = [&f]<form What, int Forward, int Backward>() {
    constexpr auto const& d = draft_of<S, What, Forward, Backward>::value;
    static_assert(!d.problem);
    f(std::vector<op>(d.ops, d.ops + d.count));
  };
  (one.template operator()<form::forward, K, -1>(), ...);
  (one.template operator()<form::backward, -1, K>(), ...);
  (one.template operator()<form::backward_input, -1, K>(), ...);
  (one.template operator()<form::backward_weight, -1, K>(), ...);
  auto const pairs = [&one]<int... Pair>(std::integer_sequence<int, Pair...>) {
    (one.template operator()<form::forward_backward, Pair / n, Pair % n>(), ...);
  };
  pairs(std::make_integer_sequence<int, n * n>{});
}
template <class F> void for_each_shipped_body(F&& f) {
  auto const of = [&f]<class S>(S) {
    for_each_body_of<S>(f, std::make_integer_sequence<int, S::model::count>{});
  };
  of(Schedule<Model, Serial>{});
  of(Schedule<Model, TwoStream1F1B>{});
  of(Schedule<Model, TwoStream1F1B, SplitDW>{});
  of(Schedule<OddModel, TwoStream1F1B, SplitDW>{});
}

diagnosis check(std::vector<op> const& ops) {
  return check_table(ops.data(), static_cast<int>(ops.size()), detail::body_groups, 2);
}

/// Cells enough for the small tables below.
op row(lane on, cell_set reads, cell_set writes, cell_set clears = 0) {
  op o;
  o.on = on;
  o.touches.reads = reads;
  o.touches.writes = writes;
  o.touches.clears = clears;
  o.next_group = 1;
  return o;
}
std::vector<op> linked(std::vector<op> ops) {
  link(ops.data(), static_cast<int>(ops.size()), 2, 1);
  return ops;
}
int wait_of(op const& o, lane on) { return o.wait[static_cast<int>(on)]; }
int count_waits(std::vector<op> const& ops) {
  int count = 0;
  for (op const& o : ops)
    for (int w : o.wait) count += w >= 0;
  return count;
}
diagnosis check_small(std::vector<op> const& ops) {
  return check_table(ops.data(), static_cast<int>(ops.size()), 2, 1);
}

constexpr cell_set x = cells::root(0), y = cells::root(1), z = cells::root(2);

} // namespace

TEST_CASE("waits follow from the dataflow", "[link]") {
  SECTION("a read waits for the write on another lane, not for one on its own") {
    auto const ops = linked({row(lane::compute, 0, x), row(lane::comm, x, y), row(lane::comm, y, 0)});
    CHECK(wait_of(ops[1], lane::compute) == 0);
    CHECK(count_waits(ops) == 1);
  }
  SECTION("an overwrite waits for the readers, and readers do not wait for each other") {
    auto const ops = linked({row(lane::compute, 0, x), row(lane::comm, x, 0), row(lane::send_lower, x, 0),
                             row(lane::compute, 0, x)});
    CHECK(wait_of(ops[2], lane::comm) == -1);
    CHECK(wait_of(ops[3], lane::comm) == 1);
    CHECK(wait_of(ops[3], lane::send_lower) == 2);
  }
  SECTION("giving back waits for the readers too") {
    auto const ops = linked({row(lane::compute, 0, x), row(lane::comm, x, 0), row(lane::compute, 0, 0, x)});
    CHECK(wait_of(ops[2], lane::comm) == 1);
  }
  SECTION("weight gradients of one node wait for each other across lanes") {
    auto a = row(lane::compute, 0, x), b = row(lane::comm, 0, y), c = row(lane::comm, 0, z);
    a.touches.accumulates = b.touches.accumulates = c.touches.accumulates = true;
    c.node = 1;
    auto const ops = linked({a, b, c});
    CHECK(wait_of(ops[1], lane::compute) == 0);
    CHECK(wait_of(ops[2], lane::compute) == -1);
  }
}

TEST_CASE("a wait that others imply is left out", "[link]") {
  SECTION("through a third lane") {
    auto const ops =
        linked({row(lane::compute, 0, x), row(lane::comm, x, y), row(lane::send_lower, x | y, 0)});
    CHECK(wait_of(ops[2], lane::comm) == 1);
    CHECK(wait_of(ops[2], lane::compute) == -1);
  }
  SECTION("through an earlier wait of the same lane") {
    auto const ops = linked(
        {row(lane::compute, 0, x), row(lane::compute, 0, y), row(lane::comm, y, 0), row(lane::comm, x, 0)});
    CHECK(wait_of(ops[2], lane::compute) == 1);
    CHECK(wait_of(ops[3], lane::compute) == -1);
  }
  SECTION("only the latest of a lane is kept") {
    auto const ops = linked({row(lane::compute, 0, x), row(lane::compute, 0, y), row(lane::comm, x | y, 0)});
    CHECK(wait_of(ops[2], lane::compute) == 1);
    CHECK(count_waits(ops) == 1);
  }
}

TEST_CASE("tables are refused for what is wrong with them", "[check]") {
  auto good = linked({row(lane::compute, 0, x), row(lane::comm, x, y), row(lane::compute, y, 0, x | y)});
  CHECK_FALSE(check_small(good));
  SECTION("race") {
    for (int& w : good[1].wait) w = -1;
    diagnosis const d = check_small(good);
    CHECK(d.what == fault::race);
    CHECK(d.at == 1);
    CHECK(d.other == 0);
    CHECK(d.cell == cells::first_root);
  }
  SECTION("wait on a later op") {
    good[0].wait[static_cast<int>(lane::comm)] = 1;
    diagnosis const d = check_small(good);
    CHECK(d.what == fault::wait_on_later);
    CHECK(d.at == 0);
    CHECK(d.other == 1);
  }
  SECTION("read of what nobody wrote") {
    good[1].touches.reads |= z;
    diagnosis const d = check_small(good);
    CHECK(d.what == fault::unwritten_read);
    CHECK(d.at == 1);
    CHECK(d.cell == cells::first_root + 2);
    good[1].what = pass::backward_weight;
    CHECK(check_small(good).what == fault::weight_before_input);
  }
  SECTION("read of what was given back") {
    good.push_back(row(lane::compute, x, 0));
    diagnosis const d = check_small(good);
    CHECK(d.what == fault::read_after_release);
    CHECK(d.at == 3);
    CHECK(d.other == 2);
    CHECK(d.cell == cells::first_root);
  }
  SECTION("given back before a reader on another lane is done") {
    for (int& w : good[2].wait) w = -1;
    good[2].touches.reads = 0;
    diagnosis const d = check_small(good);
    CHECK(d.what == fault::race);
    CHECK(d.at == 2);
    CHECK(d.other == 1);
  }
  SECTION("weight gradients that do not ascend") {
    for (op& o : good) o.touches.accumulates = true;
    good = linked(good);
    // What a microbatch reads is its own.
    for (op& o : good) o.touches.reads = 0;
    good[0].microbatch = 1, good[1].microbatch = 1, good[2].microbatch = 2;
    CHECK_FALSE(check_small(good));
    good[2].microbatch = 0;
    diagnosis const d = check_small(good);
    CHECK(d.what == fault::weight_order);
    CHECK(d.at == 2);
  }
}

TEST_CASE("no wait of a shipped body is superfluous", "[check]") {
  int removed = 0;
  for_each_shipped_body([&removed](std::vector<op> const& ops) {
    REQUIRE_FALSE(check(ops));
    for (unsigned i = 0; i < ops.size(); ++i)
      for (unsigned l = 0; l < lane_count; ++l) {
        if (ops[i].wait[l] < 0) continue;
        std::vector<op> broken = ops;
        broken[i].wait[l] = -1;
        diagnosis const d = check(broken);
        CHECK(d.what == fault::race);
        CHECK(d.at >= static_cast<int>(i));
        ++removed;
      }
  });
  CHECK(removed > 200);
}

TEST_CASE("an op moved before one that it needs is refused", "[check]") {
  int moved = 0, refused = 0;
  for_each_shipped_body([&](std::vector<op> const& ops) {
    for (unsigned i = 0; i < ops.size(); ++i)
      for (unsigned to = 0; to < i; ++to) {
        // What it must come after, by the waits and by what lies on its own lane.
        bool needs_one = false;
        for (unsigned j = to; j < i; ++j) {
          auto const &a = ops[j].touches, &b = ops[i].touches;
          cell_set const mine = b.reads | b.writes | b.clears, changed = a.writes | a.clears;
          needs_one =
              needs_one || (ops[j].group == ops[i].group && (changed & mine) != 0) ||
              (ops[j].next_group == ops[i].next_group &&
               ((a.next_writes | a.next_clears) & (b.next_reads | b.next_writes | b.next_clears)) != 0);
        }
        std::vector<op> swapped = ops;
        op const o = ops[i];
        swapped.erase(swapped.begin() + static_cast<int>(i));
        swapped.insert(swapped.begin() + static_cast<int>(to), o);
        link(swapped.data(), static_cast<int>(swapped.size()), detail::body_groups, 2);
        bool const bad = static_cast<bool>(check(swapped));
        ++moved;
        refused += bad;
        // Linked anew, an order is legal or it reads what is not there yet; a race cannot remain.
        if (bad) CHECK(check(swapped).what != fault::race);
        if (bad) CHECK(needs_one);
      }
  });
  CHECK(refused > 300);
  CHECK(moved > refused);
}

TEST_CASE("what the linker made of random tables has no race and no wait too many", "[link]") {
  std::mt19937 random(17);
  for (int round = 0; round < 300; ++round) {
    std::vector<op> ops;
    // Written first, so that every read finds something.
    ops.push_back(row(lane::compute, 0, 0xff));
    int const count = 3 + static_cast<int>(random() % 20);
    for (int i = 0; i < count; ++i)
      ops.push_back(row(static_cast<lane>(random() % 3), random() & random() & random() & 0xff,
                        random() & random() & random() & 0xff));
    ops = linked(ops);
    REQUIRE_FALSE(check_small(ops));
    for (op& o : ops)
      for (int& w : o.wait) {
        if (w < 0) continue;
        int const kept = std::exchange(w, -1);
        CHECK(check_small(ops).what == fault::race);
        w = kept;
      }
  }
}

TEST_CASE("linking and checking are constant expressions", "[link]") {
  constexpr bool good = [] {
    op ops[2];
    ops[0].touches.writes = cells::root(0);
    ops[1].on = lane::comm;
    ops[1].touches.reads = cells::root(0);
    link(ops, 2, 1, 1);
    return ops[1].wait[0] == 0 && !check_table(ops, 2, 1, 1);
  }();
  STATIC_CHECK(good);
}

TEST_CASE("what another microbatch left in a slot counts as unwritten", "[link]") {
  op ops[] = {row(lane::compute, 0, cells::root(0)), row(lane::compute, cells::root(0), 0)};
  CHECK_FALSE(check_table(ops, 2, 1, 1));
  ops[1].microbatch = 1;
  diagnosis const found = check_table(ops, 2, 1, 1);
  CHECK(found.what == fault::unwritten_read);
  CHECK(found.at == 1);
}
