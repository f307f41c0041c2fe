#include "gpu/message_checks.hpp"
#include "gpu/process_messages.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

using namespace test;

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
    auto exchange = make_process_exchange(of_rank, std::chrono::milliseconds(1000));
    for (int i = 0; i < 3; ++i) data.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    of_rank.barrier();
    cuda::host_flags never(1);
    if (me == 1) {
      // It comes to the call, and what it sends does not.
      cuda::flag_ops().wait_for(never[0], 1).issue(own.get());
      data.issue(exchange, 64, own.get());
      ::raise(SIGKILL);
    }
    std::string told;
    try {
      for (int i = 0; i < 3; ++i) data.issue(exchange, 64, own.get());
    } catch (std::exception const& problem) {
      told = problem.what();
    }
    // What is not let go hangs here.
    static_cast<void>(cudaStreamSynchronize(own.get()));
    bool const is_told = told == "call 5 of a process_exchange: rank 1 did not come within 1000 ms" ||
                         told.ends_with("of a process_exchange given up: a rank has failed");
    if (!is_told) std::fprintf(stderr, "rank %d: '%s'\n", me, told.c_str());
    return is_told;
  };
  CHECK(count_true(ranks, survives) == ranks - 1);
}

TEST_CASE("a process that is killed in the last call of a step ends the streams of the others", "[gpu]") {
  auto const survives = [](shared_exchange& of_rank) {
    use_gpu_of(of_rank.rank(), 1);
    cuda::stream own;
    auto const current = cuda::thread_stream{}.enter(own.get());
    round_data const data(round_bytes(of_rank.rank(), 2, 0, 0, many_rows, 64));
    auto exchange = make_process_exchange(of_rank, std::chrono::milliseconds(2000));
    data.issue(exchange, 64, own.get());
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    of_rank.barrier();
    cuda::host_flags never(1);
    if (of_rank.rank() == 1) cuda::flag_ops().wait_for(never[0], 1).issue(own.get());
    data.issue(exchange, 64, own.get());
    if (of_rank.rank() == 1) ::raise(SIGKILL);
    // What is not let go hangs here.
    cuda::check(cudaStreamSynchronize(own.get()), "cudaStreamSynchronize");
    std::string told;
    try {
      data.issue(exchange, 64, own.get());
    } catch (std::exception const& problem) {
      told = problem.what();
    }
    return told == "call 3 of a process_exchange given up: a rank has failed";
  };
  CHECK(count_true(2, survives) == 1);
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
    numbers const library;
    auto const name_of = [&](int microbatch) { return message{true, 3, microbatch, 0, 1 - me}; };
    auto const content = library.of({1, 2, 3});
    auto const hand_over = [&](int microbatch) {
      auto const on = me == 1 ? lane::send_lower : lane::receive_higher;
      lanes.run(on, label_of(name_of(microbatch), on), [&] {
        if (me == 1)
          peers.send(name_of(microbatch), content);
        else
          static_cast<void>(peers.receive(name_of(microbatch)));
      });
    };
    hand_over(4);
    lanes.drain();
    cuda::host_flags never(1);
    if (me == 1) cuda::flag_ops().wait_for(never[0], 1).issue(lanes.stream(lane::send_lower));
    hand_over(5);
    // The other has seen to where it lies.
    ranks.barrier();
    if (me == 1) ::raise(SIGKILL);
    std::string told, later;
    try {
      // What is not let go hangs here.
      lanes.drain();
    } catch (host::step_error const& problem) {
      told = problem.what();
    }
    try {
      peers.send(name_of(6), content);
    } catch (std::runtime_error const& problem) {
      later = problem.what();
    }
    bool const is_told =
        told == "rank 0: receive of stage 3's gradient, microbatch 5 failed: process_peers: nothing came "
                "from rank 1 within 1000 ms" &&
        later == "a message of process_peers given up: a rank has failed";
    if (!is_told) std::fprintf(stderr, "'%s' '%s'\n", told.c_str(), later.c_str());
    return is_told;
  };
  CHECK(count_true(2, survives) == 1);
}

TEST_CASE("streams that are let go are told to the board, with the op that waited", "[gpu]") {
  auto const survives = [](shared_exchange& ranks) {
    int const me = ranks.rank();
    use_gpu_of(me, 1);
    host::failure_board board;
    rank_lanes lanes({.rank = me}, {}, &board);
    round_data const data(round_bytes(me, 2, 0, 0, many_rows, 64));
    exchange_of_processes exchange(ranks, cuda::thread_stream{},
                                   settings_of(me, board, std::chrono::seconds(1)));
    cuda::host_flags never(1);
    if (me == 1) cuda::flag_ops().wait_for(never[0], 1).issue(lanes.stream(lane::comm));
    lanes.run(lane::comm, {combine, pass::backward, lane::comm, 2, 7},
              [&] { data.issue(exchange, 64, lanes.stream(lane::comm)); });
    if (me == 1) {
      // Until the other is over with it.
      ranks.barrier();
      ::raise(SIGKILL);
    }
    std::string told;
    try {
      lanes.drain();
    } catch (host::step_error const& problem) {
      told = problem.what();
    }
    ranks.barrier();
    bool const is_told =
        told ==
        "rank 0: B.combine of layer 2, microbatch 7 failed: process_exchange: nothing came from rank 1 "
        "within 1000 ms";
    if (!is_told) std::fprintf(stderr, "'%s'\n", told.c_str());
    return is_told;
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
    auto exchange = make_process_exchange(of_rank, std::chrono::milliseconds(1000));
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
