#include "lane_laws.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>
#include <functional>
#include <stdexcept>
#include <string>

using namespace test;

namespace {

/// Lanes with one fault each: the laws must see it.
struct forgets_waits : host::lanes {
  using host::lanes::lanes;
  void wait(lane, event const&) {}
};

/// Its events keep what they were recorded as first.
struct keeps_the_first_record : host::lanes {
  using host::lanes::lanes;
  void record(lane on, event& mark) {
    if (mark.ticket == 0) host::lanes::record(on, mark);
  }
};

/// An event that was never recorded stops the lane until the step is over.
struct waits_for_nothing : host::lanes {
  using host::lanes::lanes;
  std::atomic<bool> is_over = false;
  void wait(lane on, event const& mark) {
    host::lanes::wait(on, mark);
    if (mark.ticket != 0) return;
    run(on, label(attn), [over = &is_over] {
      while (!*over) sleep_ms(1);
    });
  }
  void drain() {
    is_over = true;
    host::lanes::drain();
  }
};

/// Looks at the event when the wait runs, not when it was issued.
struct binds_late {
  struct event {
    std::atomic<lane> on{lane::compute};
    std::atomic<int> ticket{0};
  };
  host::lanes inner;
  int issued[2] = {};
  std::atomic<int> done[2] = {};

  template <class Task> void run(lane on, op_label const& op, Task task) {
    auto* const count = &done[static_cast<int>(on)];
    ++issued[static_cast<int>(on)];
    inner.run(on, op, [task, count]() mutable {
      task();
      ++*count;
    });
  }
  void record(lane on, event& mark) {
    mark.on = on;
    mark.ticket = issued[static_cast<int>(on)];
  }
  void wait(lane on, event const& mark) {
    inner.run(on, label(attn), [this, &mark] {
      while (done[static_cast<int>(mark.on.load())] < mark.ticket) sleep_ms(1);
    });
  }
  void drain() { inner.drain(); }
};

/// Issues the second op of each two on a lane before the first.
struct swaps_neighbours : host::lanes {
  std::deque<std::function<void()>> tasks;
  std::function<void()>* held[2] = {};
  template <class Task> void run(lane on, op_label const& op, Task task) {
    std::function<void()>*& first = held[static_cast<int>(on)];
    std::function<void()>* const second = &tasks.emplace_back(task);
    if (first) {
      host::lanes::run(on, op, [second] { (*second)(); });
      host::lanes::run(on, op, [first = first] { (*first)(); });
    }
    first = first ? nullptr : second;
  }
};

host::lane_options shaken(std::uint64_t seed) {
  host::lane_options options;
  options.peers = true;
  options.shake_seed = seed;
  options.shake_us = 30;
  return options;
}

} // namespace

TEST_CASE("lanes keep the laws", "[lanes]") {
  auto const longest = std::chrono::microseconds::max().count();
  auto const look = std::chrono::microseconds(GENERATE_COPY(as<std::int64_t>{}, 0, 50, 20000, longest));
  for (std::uint64_t const seed : {0u, 1u, 2u}) {
    auto options = shaken(seed);
    options.look = look;
    host::lanes lanes(options);
    CHECK(runs_in_order_of_issue(lanes));
    CHECK(wait_orders(lanes, 30));
    CHECK(wait_binds_to_the_last_record(lanes, 30));
    CHECK(a_later_record_leaves_the_wait_alone(lanes, 5000));
    CHECK(trivial_waits_go_through(lanes));
    CHECK(random_waits_hold(lanes, all_lanes(), 7 + static_cast<unsigned>(seed), 3000));
  }
}

TEST_CASE("the laws see lanes that break them", "[lanes]") {
  {
    forgets_waits lanes;
    CHECK_FALSE(wait_orders(lanes, 5000));
    CHECK_FALSE(wait_binds_to_the_last_record(lanes, 5000));
  }
  {
    forgets_waits lanes(shaken(5));
    CHECK_FALSE(random_waits_hold(lanes, all_lanes(), 7, 3000));
  }
  {
    keeps_the_first_record lanes;
    CHECK(wait_orders(lanes, 30));
    CHECK_FALSE(wait_binds_to_the_last_record(lanes, 5000));
  }
  {
    binds_late lanes;
    CHECK(wait_orders(lanes, 30));
    CHECK(wait_binds_to_the_last_record(lanes, 30));
    CHECK_FALSE(a_later_record_leaves_the_wait_alone(lanes, 300));
  }
  {
    waits_for_nothing lanes;
    CHECK_FALSE(trivial_waits_go_through(lanes, 100));
  }
  {
    swaps_neighbours lanes;
    CHECK_FALSE(runs_in_order_of_issue(lanes));
  }
}

TEST_CASE("the host blocks while a lane's ring is full", "[lanes]") {
  host::lanes lanes({.ring = 4});
  std::atomic<bool> open = false;
  std::atomic<bool> all_issued = false;
  int ran = 0;
  std::thread host([&] {
    lanes.run(lane::compute, label(attn), [&open] { comes_true(open, 5000); });
    for (int i = 0; i < 20; ++i) lanes.run(lane::compute, label(mlp), [&ran] { ++ran; });
    all_issued = true;
  });
  sleep_ms(50);
  CHECK_FALSE(all_issued);
  open = true;
  host.join();
  lanes.drain();
  CHECK(ran == 20);
}

TEST_CASE("a ring that wraps many times loses nothing", "[lanes]") {
  host::lanes lanes({.ring = 2});
  long sum = 0;
  for (int i = 0; i < 20000; ++i) lanes.run(lane::comm, label(dispatch, lane::comm), [&sum, i] { sum += i; });
  lanes.drain();
  CHECK(sum == 20000L * 19999 / 2);
}

TEST_CASE("a lane looks for what it waits for as long as it was told to, then it sleeps", "[lanes]") {
  auto const busy_ms = [](std::chrono::microseconds look) {
    host::lanes lanes({.peers = true, .look = look});
    auto const start = std::clock();
    host::lanes::event mark;
    lanes.run(lane::comm, label(dispatch, lane::comm), [] { sleep_ms(300); });
    lanes.record(lane::comm, mark);
    lanes.wait(lane::compute, mark);
    lanes.run(lane::compute, label(mlp), [] {});
    lanes.drain();
    return 1000.0 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  using std::chrono::milliseconds;
  CHECK(busy_ms(milliseconds(0)) < 20);
  CHECK(busy_ms(milliseconds(20)) < 100);
  // Who looks gives way to others: on a machine with other work its share may be small.
  CHECK(busy_ms(milliseconds(280)) > 20);
}

TEST_CASE("drain waits for every lane and may be called at any time", "[lanes]") {
  host::lanes lanes({.peers = true});
  lanes.drain();
  std::vector<int> done(all_lanes().size());
  for (lane const on : all_lanes())
    lanes.run(on, label(attn, on), [mine = &done[static_cast<std::size_t>(on)]] {
      sleep_ms(20);
      *mine = 1;
    });
  CHECK_FALSE(lanes.idle());
  lanes.drain();
  CHECK(lanes.idle());
  CHECK(std::count(done.begin(), done.end(), 1) == static_cast<long>(done.size()));
  lanes.drain();
}

TEST_CASE("a lane that was not asked for is refused by name", "[lanes]") {
  host::lanes lanes;
  host::lanes::event mark;
  CHECK_THROWS_AS(lanes.run(lane::receive_lower, label(attn), [] {}), std::invalid_argument);
  CHECK_THROWS_AS(lanes.record(lane::forward_port, mark), std::invalid_argument);
  try {
    lanes.record(lane::receive_lower, mark);
    FAIL("nothing was thrown");
  } catch (std::invalid_argument const& error) {
    CHECK(std::string(error.what()).find("'receive lower'; ask for it with lane_options::peers") !=
          std::string::npos);
  }
}

TEST_CASE("the start hook runs once on each lane's own thread", "[lanes]") {
  std::atomic<int> calls = 0;
  std::vector<std::thread::id> started(all_lanes().size());
  host::lanes lanes({.peers = true}, [&](lane on) {
    ++calls;
    started[static_cast<std::size_t>(on)] = std::this_thread::get_id();
  });
  CHECK(calls == static_cast<int>(started.size()));
  for (lane const on : all_lanes()) {
    std::thread::id ran;
    lanes.run(on, label(attn, on), [&ran] { ran = std::this_thread::get_id(); });
    lanes.drain();
    CHECK(ran == started[static_cast<std::size_t>(on)]);
    CHECK(ran != std::this_thread::get_id());
  }
}

TEST_CASE("what the start hook throws, the constructor throws", "[lanes]") {
  auto const fails_on_comm = [](lane on) {
    if (on == lane::comm) throw std::runtime_error("no such core");
  };
  CHECK_THROWS_AS((host::lanes({}, fails_on_comm)), std::runtime_error);
}

TEST_CASE("an op that throws ends the step: later ops are skipped, drain names it, then a new step runs",
          "[lanes]") {
  for (lane const on : all_lanes()) {
    host::lanes lanes({.rank = 3, .peers = true});
    std::atomic<int> after = 0;
    host::lanes::event mark;
    std::atomic<bool> failed = false;
    lanes.run(on, label(mlp, on, 3, 2, pass::backward_weight), [&failed] {
      failed = true;
      throw std::out_of_range("expert 9 of 8\nframe #0: choose");
    });
    lanes.record(on, mark);
    REQUIRE(comes_true(failed, 5000));
    for (lane const other : all_lanes()) {
      lanes.wait(other, mark);
      lanes.run(other, label(attn, other), [&after] { ++after; });
    }
    try {
      lanes.drain();
      FAIL("drain did not throw");
    } catch (step_error const& error) {
      CHECK(error.rank == 3);
      CHECK(error.in_op);
      CHECK(error.op.phase == mlp);
      CHECK(error.op.what == pass::backward_weight);
      CHECK(error.op.on == on);
      CHECK(error.op.layer == 3);
      CHECK(error.op.microbatch == 2);
      CHECK(error.reason == "expert 9 of 8\nframe #0: choose");
      CHECK(std::string(error.what()) == "rank 3: " + describe(error.op) + " failed: expert 9 of 8");
      CHECK_THROWS_AS(std::rethrow_if_nested(error), std::out_of_range);
    }
    CHECK(after == 0);
    lanes.run(on, label(attn, on), [&after] { ++after; });
    lanes.drain();
    CHECK(after == 1);
  }
}

TEST_CASE("ops and messages are described in words", "[lanes]") {
  CHECK(describe(label(mlp, lane::compute, 3, 2, pass::backward_weight)) == "W.mlp of layer 3, microbatch 2");
  CHECK(describe(label(attn, lane::send_higher, 1, 0)) == "send of stage 1's activation, microbatch 0");
  CHECK(describe(label(attn, lane::receive_lower, 4, 7, pass::backward)) ==
        "receive of stage 4's gradient, microbatch 7");
  CHECK(describe(failure{2, false, {}, "out of disk", {}}) == "rank 2 failed: out of disk");
}

TEST_CASE("the first failure wins", "[lanes]") {
  host::lanes lanes;
  host::lanes::event mark;
  lanes.run(lane::comm, label(combine, lane::comm, 1), [] { throw 42; });
  lanes.record(lane::comm, mark);
  lanes.wait(lane::compute, mark);
  lanes.run(lane::compute, label(mlp, lane::compute, 2), [] { throw std::runtime_error("second"); });
  try {
    lanes.drain();
    FAIL("drain did not throw");
  } catch (step_error const& error) {
    CHECK(error.op.phase == combine);
    CHECK(error.reason == "it threw something that is no std::exception");
    CHECK_THROWS_AS(std::rethrow_if_nested(error), int);
  }
}

TEST_CASE("lanes destroyed with work outstanding do it first", "[lanes]") {
  int ran = 0;
  {
    host::lanes lanes;
    host::lanes::event mark;
    for (int i = 0; i < 50; ++i) {
      lanes.run(lane::comm, label(dispatch, lane::comm), [] {});
      lanes.record(lane::comm, mark);
      lanes.wait(lane::compute, mark);
      lanes.run(lane::compute, label(mlp), [&ran] { ++ran; });
    }
  }
  CHECK(ran == 50);
}

TEST_CASE("lanes left by an exception give the step up and tell the group", "[lanes]") {
  host::failure_board board;
  int ran = 0;
  try {
    host::lanes lanes({.rank = 1, .board = &board});
    lanes.run(lane::compute, label(attn), [&] {
      while (!board.failed()) sleep_ms(1);
    });
    for (int i = 0; i < 10; ++i) lanes.run(lane::compute, label(mlp), [&ran] { ++ran; });
    throw std::runtime_error("host gives up");
  } catch (std::runtime_error const&) {
  }
  CHECK(ran == 0);
  REQUIRE(board.failed());
  CHECK(board.first().rank == 1);
}

TEST_CASE("the timeline holds what ran, in order, up to its capacity", "[lanes]") {
  host::lanes lanes({.rank = 2, .spans = 3});
  for (int i = 0; i < 5; ++i) lanes.run(lane::compute, label(mlp, lane::compute, 1, i), [] { sleep_ms(2); });
  lanes.run(lane::comm, label(dispatch, lane::comm, 1, 9), [] { sleep_ms(3); });
  lanes.drain();
  auto const spans = lanes.timeline();
  REQUIRE(spans.size() == 4);
  int computed = 0;
  double last_start = spans.front().start_us;
  for (auto const& each : spans) {
    CHECK(each.rank == 2);
    CHECK(each.end_us - each.start_us >= 2000);
    CHECK(each.start_us >= last_start);
    last_start = each.start_us;
    if (each.label.on == lane::compute)
      CHECK(each.label.microbatch == computed++);
    else
      CHECK(each.label.microbatch == 9);
  }
  lanes.clear_timeline();
  CHECK(lanes.timeline().empty());
  lanes.run(lane::compute, label(attn), [] {});
  lanes.drain();
  CHECK(lanes.timeline().size() == 1);
}
