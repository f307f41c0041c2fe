#include "../../examples/own_tensors/model.hpp"

#include <stretto/adapters/host.hpp>
#include <stretto/executor.hpp>

#include <catch2/catch_test_macros.hpp>

#include <chrono>
#include <string>

using namespace stretto;

namespace {

constexpr int ranks = 3, microbatches = 2;
constexpr char const* picture = "EMH";
constexpr std::chrono::milliseconds deadline{300};
constexpr double longest_seconds = 2;

/// What goes wrong at one op of one rank.
enum class mishap { none, phase_throws_at_once, phase_throws_at_its_end, communicator_fails, rank_leaves };

std::string const end_of_step = "barrier given up: ";

struct left_the_group {};

/// The exchange of a rank; it fails instead of the next call once the flag is up.
struct failing_exchange {
  host::communicator inner;
  std::atomic<bool> fails{false};

  int rank() const { return inner.rank(); }
  int ranks() const { return inner.ranks(); }
  void exchange_counts(int const* send_rows, int* counts) { inner.exchange_counts(send_rows, counts); }
  void all_to_all(void const* send, int const* send_rows, void* receive, int const* receive_rows,
                  std::size_t bytes) {
    if (fails.exchange(false)) throw host::communicator_error("the link is down", rank());
    inner.all_to_all(send, send_rows, receive, receive_rows, bytes);
  }
};

/// Threads, with a mishap at the op of that number.
struct faulty_lanes {
  using event = host::lanes::event;
  host::lanes& inner;
  failing_exchange& exchange;
  mishap what = mishap::none;
  int at = -1;
  int op = 0;
  op_label met{};
  std::vector<op_label> labels{};

  template <class Task> void run(lane on, op_label const& label, Task task) {
    labels.push_back(label);
    if (op++ != at) return inner.run(on, label, task);
    met = label;
    switch (what) {
    case mishap::phase_throws_at_once:
      return inner.run(on, label, [] { throw std::runtime_error("no more tokens"); });
    case mishap::phase_throws_at_its_end:
      return inner.run(on, label, [task]() mutable {
        task();
        throw std::runtime_error("no more tokens");
      });
    case mishap::communicator_fails:
      inner.run(on, label, [flag = &exchange.fails] { *flag = true; });
      return inner.run(on, label, task);
    case mishap::rank_leaves:
      throw left_the_group();
    case mishap::none:
      break;
    }
    inner.run(on, label, task);
  }
  void record(lane on, event& e) { inner.record(on, e); }
  void wait(lane on, event const& e) { inner.wait(on, e); }
  void drain() { inner.drain(); }
};

using Comm = array::expert_parallel<failing_exchange>;
using Network = own_tensors::network<Comm>;
using Model = Network::model;

/// What a rank saw of a step.
struct outcome {
  std::string error;
  bool step_failed = false, names_op = false, left = false;
  int rank = -1;
  op_label op{}, met{};
  double seconds = 0;
  bool idle = false;
  std::size_t lives = 0;
  std::vector<op_label> labels;
  std::vector<std::uint32_t> bits; ///< of the step after it
};

/// A step in which rank `where` meets a mishap at op `at`, and a whole one after it.
template <class S> std::vector<outcome> step_with(mishap what, int where, int at) {
  std::vector<outcome> all(ranks);
  host::group group(ranks, {.deadline = deadline});
  int const closing = group.add_domain();
  auto body = [&](int rank, bool again) {
    outcome& mine = all[static_cast<std::size_t>(rank)];
    failing_exchange exchange{group.communicator(rank)};
    host::communicator end = group.communicator(rank, closing);
    own_tensors::shape const shape;
    Comm comm(exchange, shape.experts / ranks);
    array::tensors arrays;
    Network net(picture, shape, arrays, comm, microbatches);
    net.next_batches(0);
    host::lanes threads({.rank = rank, .board = &group.board()});
    faulty_lanes lanes{threads, exchange};
    if (!again && rank == where) lanes.what = what, lanes.at = at;
    executor run(S{}, backend{arrays, lanes}, net.layers, sizes{.microbatches = microbatches});
    std::size_t const parameters = arrays.memory().live();
    if (!again) {
      auto const start = host::clock::now();
      try {
        run();
        end.barrier();
      } catch (host::step_error const& error) {
        mine.error = error.what();
        mine.step_failed = true;
        mine.names_op = error.in_op;
        mine.rank = error.rank;
        mine.op = error.op;
      } catch (host::communicator_error const& error) {
        mine.error = error.what();
        mine.rank = error.rank;
      } catch (left_the_group const&) {
        mine.left = true;
      }
      mine.seconds = std::chrono::duration<double>(host::clock::now() - start).count();
      mine.idle = threads.idle();
      mine.lives = arrays.memory().live() - parameters;
      mine.met = lanes.met;
      mine.labels = lanes.labels;
      if (what == mishap::rank_leaves) return;
      group.reset();
      net.clear_gradients();
    }
    run();
    mine.bits = net.bits();
  };
  try {
    group.run([&](int rank) { body(rank, false); });
  } catch (host::step_error const&) {
  }
  if (what == mishap::rank_leaves) group.run([&](int rank) { body(rank, true); });
  return all;
}

bool same(op_label const& a, op_label const& b) {
  return a.phase == b.phase && a.what == b.what && a.on == b.on && a.layer == b.layer &&
         a.microbatch == b.microbatch;
}

template <class S> void every_op_may_fail() {
  std::vector<outcome> const sound = step_with<S>(mishap::none, -1, -1);
  int const ops = static_cast<int>(sound[0].labels.size());
  REQUIRE(ops >= 24);
  for (outcome const& rank : sound) REQUIRE(rank.error.empty());
  int failed_exchanges = 0;
  for (int at = 0; at < ops; ++at)
    for (mishap const what : {mishap::phase_throws_at_once, mishap::phase_throws_at_its_end,
                              mishap::communicator_fails, mishap::rank_leaves}) {
      int const where = at % ranks;
      phase_kind const phase = sound[0].labels[static_cast<std::size_t>(at)].phase;
      if (what == mishap::communicator_fails && phase != dispatch && phase != combine) continue;
      auto all = step_with<S>(what, where, at);
      op_label const met = all[static_cast<std::size_t>(where)].met;
      failed_exchanges += what == mishap::communicator_fails;
      std::string one_error;
      for (int rank = 0; rank < ranks; ++rank) {
        outcome& mine = all[static_cast<std::size_t>(rank)];
        CAPTURE(at, static_cast<int>(what), where, rank, mine.error);
        CHECK(mine.seconds < longest_seconds);
        CHECK(mine.idle);
        CHECK(mine.lives == 0);
        CHECK((mine.bits == sound[static_cast<std::size_t>(rank)].bits));
        if (what == mishap::rank_leaves) {
          CHECK(mine.left == (rank == where));
          if (rank == where) continue;
          // Where nothing was left to exchange, the end of the step is what the others come to alone.
          CHECK(mine.error.find("rank " + std::to_string(where) + " did not come to") != std::string::npos);
          CHECK((mine.names_op || mine.error.find("barrier") != std::string::npos));
        } else {
          std::string const sentence =
              "rank " + std::to_string(where) + ": " + host::describe(met) + " failed: ";
          // A rank that had nothing left to do learns it where the step ends.
          if (!mine.step_failed && rank != where && mine.error.find(end_of_step) == 0)
            mine.error.erase(0, end_of_step.size());
          else
            CHECK((mine.step_failed && mine.names_op && same(mine.op, met)));
          CHECK(mine.rank == where);
          CHECK(mine.error.find(sentence) == 0);
        }
        if (one_error.empty()) one_error = mine.error;
        CHECK(mine.error == one_error);
      }
    }
  CHECK(failed_exchanges == 8);
}

} // namespace

TEST_CASE("Serial: whatever fails at whichever op, every rank ends with one error and can go on",
          "[failure]") {
  every_op_may_fail<Schedule<Model, Serial>>();
}
TEST_CASE("TwoStream1F1B: whatever fails at whichever op, every rank ends with one error and can go on",
          "[failure]") {
  every_op_may_fail<Schedule<Model, TwoStream1F1B>>();
}
TEST_CASE("SplitDW: whatever fails at whichever op, every rank ends with one error and can go on",
          "[failure]") {
  every_op_may_fail<Schedule<Model, TwoStream1F1B, SplitDW>>();
}
