#include "gpu/message_checks.hpp"
#include "gpu/process_messages.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace test;

namespace {

/// An exchange that learns that a rank was lost, as from the board of a run.
exchange_of_processes told_exchange(shared_exchange const& ranks) {
  return make_process_exchange(ranks, std::chrono::seconds(20),
                               [&board = ranks.board()] { return board.lost_a_rank.load(); });
}
[[noreturn]] void die(shared_exchange const& ranks) {
  ranks.board().lost_a_rank = true;
  ::raise(SIGKILL);
  std::abort();
}
template <class Act> std::string what_of(Act const& act) {
  try {
    act();
  } catch (std::exception const& problem) {
    return problem.what();
  }
  return {};
}
bool expect(bool right, std::string const& told) {
  if (!right) std::fprintf(stderr, "'%s'\n", told.c_str());
  return right;
}

} // namespace

TEST_CASE("a process that is killed in a call ends the calls and the streams of the others", "[gpu]") {
  int const ranks = GENERATE(2, 4), gpus = GENERATE(1, 2);
  need_gpus_of_machine(gpus);
  CAPTURE(ranks, gpus);
  auto const survives = [&](shared_exchange& of_rank) {
    int const me = of_rank.rank();
    use_gpu_of(me, gpus);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(me, ranks, 0, 0, many_rows, 64));
    auto exchange = told_exchange(of_rank);
    for (int i = 0; i < 3; ++i) data.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    of_rank.barrier();
    cuda::host_flags never(1);
    if (me == 1) {
      // It comes to the call, and what it sends does not.
      cuda::flag_ops().wait_for(never[0], 1).issue(own.get());
      data.issue(exchange, 64, own.get());
      die(of_rank);
    }
    auto const told = what_of([&] {
      for (int i = 0; i < 3; ++i) data.issue(exchange, 64, own.get());
    });
    // What is not let go hangs here.
    static_cast<void>(cudaStreamSynchronize(own.get()));
    return expect(told.ends_with("of a process_exchange given up: a rank has failed"), told);
  };
  CHECK(count_true(ranks, survives) == ranks - 1);
}

TEST_CASE("a process that is killed in the last call of a step ends the streams of the others", "[gpu]") {
  auto const survives = [](shared_exchange& of_rank) {
    use_gpu_of(of_rank.rank(), 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(of_rank.rank(), 2, 0, 0, many_rows, 64));
    auto exchange = told_exchange(of_rank);
    cuda::host_flags never(1);
    if (of_rank.rank() == 1) cuda::flag_ops().wait_for(never[0], 1).issue(own.get());
    data.issue(exchange, 64, own.get());
    of_rank.barrier();
    if (of_rank.rank() == 1) die(of_rank);
    // What is not let go hangs here.
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    auto const told = what_of([&] { data.issue(exchange, 64, own.get()); });
    return expect(told == "call 2 of a process_exchange given up: a rank has failed", told);
  };
  CHECK(count_true(2, survives) == 1);
}

TEST_CASE(
    "of several calls that are issued the one that a lost process has left open is told, with that process",
    "[gpu]") {
  int const ranks = GENERATE(2, 3), lost = GENERATE(0, 1), how = GENERATE(SIGKILL, SIGSTOP);
  CAPTURE(ranks, lost, how);
  auto const survives = [&](shared_exchange& of_rank) {
    int const me = of_rank.rank();
    use_gpu_of(me, 1);
    host::failure_board board;
    rank_lanes lanes({.rank = me}, {}, &board);
    round_data const data(round_bytes(me, ranks, 0, 0, many_rows, 64));
    exchange_of_processes exchange(of_rank, cuda::thread_stream{},
                                   settings_of(me, board, std::chrono::seconds(2)));
    cuda::host_flags never(1);
    cuda::edge two_are_done;
    for (int microbatch = 0; microbatch < 4; ++microbatch)
      lanes.run(lane::comm, {dispatch, pass::forward, lane::comm, 3, microbatch}, [&] {
        auto const here = lanes.stream(lane::comm);
        if (microbatch == 2) two_are_done.record(here);
        if (microbatch == 2 && me == lost) cuda::flag_ops().wait_for(never[0], 1).issue(here);
        data.issue(exchange, 64, here);
      });
    two_are_done.synchronize();
    of_rank.barrier();
    if (me == lost) ::raise(how);
    auto const told = what_of([&] { lanes.drain(); });
    auto const by = "rank " + std::to_string(me);
    // Whoever finds it second may learn it from the first.
    return expect(told == by +
                              ": F.dispatch of layer 3, microbatch 2 failed: process_exchange: nothing came "
                              "from rank " +
                              std::to_string(lost) + " within 2000 ms" ||
                      (ranks == 3 && told == by + " failed: process_exchange given up: a rank has failed"),
                  told);
  };
  CHECK(count_true(ranks, survives) == ranks - 1);
}

TEST_CASE("streams that are let go because another rank gave up are told to the board", "[gpu]") {
  auto const is_told = [](shared_exchange& ranks) {
    int const me = ranks.rank();
    use_gpu_of(me, 1);
    host::failure_board board;
    rank_lanes lanes({.rank = me}, {}, &board);
    round_data const data(round_bytes(me, 2, 0, 0, many_rows, 64));
    exchange_of_processes exchange(ranks, cuda::thread_stream{}, settings_of(me, board));
    cuda::host_flags never(1);
    if (me == 1) cuda::flag_ops().wait_for(never[0], 1).issue(lanes.stream(lane::comm));
    lanes.run(lane::comm, dispatch_op, [&] { data.issue(exchange, 64, lanes.stream(lane::comm)); });
    ranks.barrier();
    int const negative[] = {-1, -1};
    if (me == 1)
      static_cast<void>(what_of([&] { exchange.all_to_all(nullptr, negative, nullptr, negative, 64); }));
    // Nothing else ends what rank 0 waits for.
    std::string told;
    if (me == 0) told = what_of([&] { lanes.drain(); });
    ranks.barrier();
    never.set(0, 1);
    if (me == 1) static_cast<void>(what_of([&] { lanes.drain(); }));
    return me == 1 || expect(told == "rank 0 failed: process_exchange given up: a rank has failed", told);
  };
  CHECK(count_true(2, is_told) == 2);
}

TEST_CASE("a process that is killed before its message is there ends the step of the receiver, with the name "
          "of the message",
          "[gpu]") {
  int const gpus = GENERATE(1, 2);
  need_gpus_of_machine(gpus);
  auto const survives = [&](shared_exchange& ranks) {
    int const me = ranks.rank();
    use_gpu_of(me, gpus);
    host::failure_board board;
    peer_lanes lanes({.rank = me, .peers = true}, {}, &board);
    named_mail mail(ranks);
    message_processes<numbers> peers(ranks, mail, {}, {}, settings_of(me, board, std::chrono::seconds(1)));
    auto const content = numbers{}.of({1, 2, 3});
    message const name{true, 3, 5, 0, 1 - me};
    cuda::host_flags never(1);
    if (me == 1) {
      cuda::flag_ops().wait_for(never[0], 1).issue(lanes.stream(lane::send_lower));
      lanes.run(lane::send_lower, label_of(name, lane::send_lower), [&] { peers.send(name, content); });
    } else {
      lanes.run(lane::receive_higher, label_of(name, lane::receive_higher),
                [&] { static_cast<void>(peers.receive(name)); });
    }
    // The other has seen to where it lies.
    ranks.barrier();
    if (me == 1) die(ranks);
    // What is not let go hangs here.
    auto const told = what_of([&] { lanes.drain(); });
    auto const later = what_of([&] { peers.send(name, content); });
    return expect(
               told ==
                   "rank 0: receive of stage 3's gradient, microbatch 5 failed: process_peers: nothing came "
                   "from rank 1 within 1000 ms",
               told) &&
           expect(later == "a message of process_peers given up: a rank has failed", later);
  };
  CHECK(count_true(2, survives) == 1);
}

TEST_CASE("a process that is killed before a replay ends that of the other", "[gpu]") {
  need_gpus_of_machine(2);
  auto const survives = [](shared_exchange& of_rank) {
    use_gpu_of(of_rank.rank(), 2);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(of_rank.rank(), 2, 0, 0, many_rows, 64));
    auto exchange = make_process_exchange(of_rank, std::chrono::seconds(5));
    auto const step = [&] {
      for (int i = 0; i < 3; ++i) data.issue(exchange, 64, cuda::thread_stream{}.current());
    };
    cuda::step_graph<> graph;
    graph.warm(step);
    graph.capture(step);
    of_rank.barrier();
    for (int replay = 0; replay < 2; ++replay) {
      if (replay == 1 && of_rank.rank() == 1) ::raise(SIGKILL);
      graph.replay();
      exchange.note_launch();
      // What is not let go hangs here.
      graph.wait();
    }
    std::string told;
    try {
      data.issue(exchange, 64, own.get());
    } catch (std::exception const& problem) {
      told = problem.what();
    }
    return told.ends_with("of a process_exchange given up: a rank has failed");
  };
  CHECK(count_true(2, survives) == 1);
}
