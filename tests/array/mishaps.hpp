#pragma once

#include "../../examples/own_tensors/model.hpp"

#include <stretto/adapters/array.hpp>
#include <stretto/adapters/host.hpp>
#include <stretto/executor.hpp>

#include <catch2/catch_test_macros.hpp>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

/// Steps of the array model over ranks that are threads, each a stage of a pipeline and a rank of experts, and what
/// becomes of them when one op of one rank goes wrong.
namespace mishaps {

using namespace stretto;

/// Of steps that only a deadline ends; a busy machine must not end the others.
constexpr std::chrono::milliseconds short_deadline{300}, long_deadline{20000};
constexpr double longest_seconds = 2;

enum class mishap {
  none,
  phase_throws_at_once,
  phase_throws_at_its_end,
  communicator_fails,
  rank_leaves,
  other_sizes
};

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
    case mishap::other_sizes:
      break;
    }
    inner.run(on, label, task);
  }
  void record(lane on, event& e) { inner.record(on, e); }
  void wait(lane on, event const& e) { inner.wait(on, e); }
  void drain() { inner.drain(); }
};

/// The peers of a stage, which are ranks of a group that has several ranks a stage.
struct stage_peers {
  using tensor = array::tensor;
  host::peers<tensor> inner;
  int expert_rank, expert_ranks;

  void send(message m, tensor const& t) { inner.send(in_group(m), t); }
  tensor receive(message m) { return inner.receive(in_group(m)); }
  message in_group(message m) const {
    m.peer = m.peer * expert_ranks + expert_rank;
    return m;
  }
};

using Comm = array::expert_parallel<failing_exchange>;
using Network = own_tensors::network<Comm>;
using Model = Network::model;

/// Who has which layers: a picture for each stage, that many ranks of experts in each.
struct grid {
  std::vector<std::string> pictures;
  int expert_ranks = 1;
  int microbatches = 2;
  int rank_with_fewer = -1; ///< was started with a microbatch less than the others

  int microbatches_of(int rank) const { return microbatches - (rank == rank_with_fewer); }
  int stages() const { return static_cast<int>(pictures.size()); }
  int ranks() const { return stages() * expert_ranks; }
};

/// Losses and gradients by the number of the parameter; losses have number 0.
using numbered_bits = std::map<int, std::vector<std::uint32_t>>;

inline numbered_bits bits_of(Network const& net, bool has_losses) {
  numbered_bits all;
  auto add = [&all](int number, float x) { all[number].push_back(std::bit_cast<std::uint32_t>(x)); };
  if (has_losses)
    for (float const loss : net.data.losses) add(0, loss);
  for (own_tensors::parameter const& p : net.parameters)
    for (std::size_t i = 0; i < p.gradient.size(); ++i) add(p.number, p.gradient.data()[i]);
  return all;
}

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
  numbered_bits bits; ///< of the step after it
};

/// Runs one step of every rank, and after `mishap` a whole one.
template <class S> class steps_of {
public:
  explicit steps_of(grid const& of)
      : of_(of), all_(static_cast<std::size_t>(of.ranks())), arrays_(all_.size()) {}

  /// Rank `where` meets it at its op `at`.
  std::vector<outcome> with(mishap what, int where, int at) {
    run_group(ends_the_group(what) ? short_deadline : long_deadline,
              [&](rank_context& mine) { first_step(mine, what, mine.rank == where ? at : -1); });
    if (ends_the_group(what))
      for (std::size_t r = 0; r < all_.size(); ++r) all_[r].lives = arrays_[r].memory().live();
    // A rank that left comes back to a group that knows nothing of the step before.
    if (what == mishap::rank_leaves) run_group(long_deadline, [&](rank_context& mine) { whole_step(mine); });
    return all_;
  }

private:
  static bool ends_the_group(mishap what) {
    return what == mishap::rank_leaves || what == mishap::other_sizes;
  }

  struct rank_context {
    rank_context(grid const& of, host::group& all, host::mailbox<array::tensor>& mailbox, int number,
                 array::tensors& memory)
        : group(all), rank(number),
          stage(number / of.expert_ranks), exchange{all.communicator(number, 1 + stage)},
          end(all.communicator(number)), comm(exchange, own_tensors::shape{}.experts / of.expert_ranks),
          arrays(memory),
          net(of.pictures[static_cast<std::size_t>(stage)], {}, arrays, comm, of.microbatches_of(number)),
          threads({.rank = number, .board = &all.board(), .peers = of.stages() > 1}),
          lanes{threads, exchange}, peers{{mailbox, number}, number % of.expert_ranks, of.expert_ranks},
          run(S{}, backend{arrays, lanes, peers}, net.layers,
              sizes{.microbatches = of.microbatches_of(number), .ranks = of.stages(), .rank = stage}) {
      net.next_batches(0);
    }
    host::group& group;
    int rank, stage;
    failing_exchange exchange;
    host::communicator end;
    Comm comm;
    array::tensors& arrays;
    Network net;
    host::lanes threads;
    faulty_lanes lanes;
    stage_peers peers;
    executor<S, array::tensors, faulty_lanes, stage_peers> run;
  };

  template <class Body> void run_group(std::chrono::milliseconds deadline, Body const& body) {
    host::group group(of_.ranks(), {.deadline = deadline});
    for (int stage = 0; stage < of_.stages(); ++stage) {
      std::vector<int> members;
      for (int e = 0; e < of_.expert_ranks; ++e) members.push_back(stage * of_.expert_ranks + e);
      group.add_domain(members);
    }
    host::mailbox<array::tensor> mailbox(group);
    try {
      group.run([&](int rank) {
        rank_context mine(of_, group, mailbox, rank, arrays_[static_cast<std::size_t>(rank)]);
        body(mine);
      });
    } catch (step_error const&) {
    }
  }

  void first_step(rank_context& mine, mishap what, int at) {
    outcome& seen = all_[static_cast<std::size_t>(mine.rank)];
    mine.lanes.what = what, mine.lanes.at = at;
    std::size_t const parameters = mine.arrays.memory().live();
    auto const start = host::clock::now();
    try {
      mine.run();
      mine.end.barrier();
    } catch (step_error const& error) {
      seen.error = error.what();
      seen.step_failed = true;
      seen.names_op = error.in_op;
      seen.rank = error.rank;
      seen.op = error.op;
    } catch (host::communicator_error const& error) {
      seen.error = error.what();
      seen.rank = error.rank;
    } catch (left_the_group const&) {
      seen.left = true;
    }
    seen.seconds = std::chrono::duration<double>(host::clock::now() - start).count();
    seen.idle = mine.threads.idle();
    seen.met = mine.lanes.met;
    seen.labels = mine.lanes.labels;
    if (ends_the_group(what)) return;
    mine.group.reset();
    // Only now messages on their way have gone.
    seen.lives = mine.arrays.memory().live() - parameters;
    mine.end.barrier();
    mine.net.clear_gradients();
    whole_step(mine);
  }
  void whole_step(rank_context& mine) {
    mine.run();
    all_[static_cast<std::size_t>(mine.rank)].bits = bits_of(mine.net, mine.stage == last_stage());
  }
  int last_stage() const {
    for (int stage = 0; stage < of_.stages(); ++stage)
      if (of_.pictures[static_cast<std::size_t>(stage)].find('H') != std::string::npos) return stage;
    return -1;
  }

  grid of_;
  std::vector<outcome> all_;
  std::deque<array::tensors> arrays_; ///< live longer than messages
};

inline bool same(op_label const& a, op_label const& b) {
  return a.phase == b.phase && a.what == b.what && a.on == b.on && a.layer == b.layer &&
         a.microbatch == b.microbatch;
}

/// One rank was started with other sizes than the rest: nobody hangs, and all are told what does not fit.
template <class S> void other_sizes_end_with_a_sentence(grid of) {
  for (int rank = 0; rank < of.ranks(); ++rank) {
    of.rank_with_fewer = rank;
    for (outcome const& mine : steps_of<S>(of).with(mishap::other_sizes, -1, -1)) {
      CAPTURE(rank, mine.error);
      // Who waits for whom is found by a deadline; calls that meet and do not fit are found at once.
      CHECK((mine.error.find(" did not send within ") != std::string::npos ||
             mine.error.find(" did not come to ") != std::string::npos ||
             mine.error.find(" bytes a row, rank ") != std::string::npos));
      CHECK(mine.seconds < longest_seconds);
      CHECK(mine.idle);
      CHECK(mine.lives == 0);
    }
  }
}

/// Walks through every op of every rank (of one rank each where all run the same) and through the mishaps.
template <class S> void every_op_may_fail(grid const& of, std::vector<mishap> const& mishaps) {
  int const ranks = of.ranks();
  std::vector<outcome> const sound = steps_of<S>(of).with(mishap::none, -1, -1);
  for (outcome const& rank : sound) REQUIRE(rank.error.empty());
  int walked = 0, failed_exchanges = 0;
  for (int where = 0; where < ranks; ++where)
    for (int at = 0; at < static_cast<int>(sound[static_cast<std::size_t>(where)].labels.size()); ++at) {
      if (at % of.expert_ranks != where % of.expert_ranks) continue;
      ++walked;
      phase_kind const phase =
          sound[static_cast<std::size_t>(where)].labels[static_cast<std::size_t>(at)].phase;
      for (mishap const what : mishaps) {
        if (what == mishap::communicator_fails && phase != dispatch && phase != combine) continue;
        failed_exchanges += what == mishap::communicator_fails;
        auto all = steps_of<S>(of).with(what, where, at);
        op_label const met = all[static_cast<std::size_t>(where)].met;
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
            std::string const who = "rank " + std::to_string(where) + " did not ";
            CHECK((mine.error.find(who + "come to") != std::string::npos ||
                   mine.error.find(who + "send") != std::string::npos));
            CHECK((mine.names_op || mine.error.find("barrier") != std::string::npos));
          } else {
            std::string const sentence = "rank " + std::to_string(where) + ": " + describe(met) + " failed: ";
            std::string const end_of_step = "barrier given up: ";
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
    }
  CHECK(walked >= 24);
  CHECK(failed_exchanges >= 8);
}

} // namespace mishaps
