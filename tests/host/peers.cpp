#include "support.hpp"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

using namespace test;

namespace {

using tensor = std::shared_ptr<int const>;

message activation(int stage, int microbatch, int peer, int chain = 0) {
  return {false, stage, microbatch, chain, peer};
}
message gradient(int stage, int microbatch, int peer, int chain = 0) {
  return {true, stage, microbatch, chain, peer};
}

} // namespace

TEST_CASE("messages are found by what they are, in whatever order they are taken",
          "[peers][megatron-30][pipelines-03]") {
  host::group group(2);
  host::mailbox<tensor> mailbox(group);
  int wrong = 0;
  group.run([&](int rank) {
    host::peers<tensor> peers(mailbox, rank);
    std::vector<message> all;
    for (int stage : {0, 3})
      for (int microbatch = 0; microbatch < 20; ++microbatch)
        for (int chain = 0; chain < 2; ++chain) {
          all.push_back(activation(stage, microbatch, 1 - rank, chain));
          all.push_back(gradient(stage, microbatch, 1 - rank, chain));
        }
    auto const number = [](message const& m) {
      return ((m.stage * 100 + m.microbatch) * 10 + m.chain) * 2 + m.gradient;
    };
    std::mt19937 random(static_cast<unsigned>(rank));
    std::shuffle(all.begin(), all.end(), random);
    if (rank == 0) {
      for (message const& m : all) peers.send(m, std::make_shared<int const>(number(m)));
    } else {
      for (message const& m : all) wrong += *peers.receive(m) != number(m);
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE(
    "of messages with one name the oldest comes first; senders are told apart; an empty one arrives empty",
    "[peers]") {
  host::group group(3);
  host::mailbox<tensor> mailbox(group);
  std::vector<int> got;
  bool empty = false;
  group.run([&](int rank) {
    host::peers<tensor> peers(mailbox, rank);
    if (rank != 2) {
      for (int i = 0; i < 3; ++i) peers.send(activation(1, 0, 2), std::make_shared<int const>(10 * rank + i));
      if (rank == 0) peers.send(gradient(1, 0, 2), tensor{});
      return;
    }
    for (int i = 0; i < 3; ++i)
      for (int from : {1, 0}) got.push_back(*peers.receive(activation(1, 0, from)));
    empty = !peers.receive(gradient(1, 0, 0));
  });
  CHECK(got == std::vector<int>{10, 0, 11, 1, 12, 2});
  CHECK(empty);
}

TEST_CASE("a message that does not come is named with its rank", "[peers]") {
  host::group group(2, {.deadline = std::chrono::milliseconds(100)});
  host::mailbox<tensor> mailbox(group);
  std::string said;
  int named = -1;
  group.run([&](int rank) {
    if (rank == 0) return;
    host::peers<tensor> peers(mailbox, rank);
    try {
      peers.receive(gradient(2, 7, 0));
    } catch (host::communicator_error const& error) {
      said = error.what();
      named = error.rank;
    }
  });
  CHECK(named == 0);
  CHECK(
      said ==
      "rank 0 did not send within 0.10 s what rank 1 waits for: receive of stage 2's gradient, microbatch 7");
}

TEST_CASE("a deadline counts from when the last op of the group has ended", "[peers][group]") {
  host::group group(2, {.deadline = std::chrono::milliseconds(1000)});
  host::mailbox<tensor> mailbox(group);
  int got = 0;
  auto const begin = host::now_us();
  group.run([&](int rank) {
    host::peers<tensor> peers(mailbox, rank);
    auto all = group.communicator(rank);
    if (rank == 1) {
      got = *peers.receive(activation(0, 0, 0));
      all.barrier();
      return;
    }
    host::lanes lanes({.rank = rank, .board = &group.board()});
    auto const work = [&] {
      for (int i = 0; i < 15; ++i) lanes.run(lane::compute, label(mlp), [] { sleep_ms(100); });
      lanes.drain();
    };
    work();
    peers.send(activation(0, 0, 1), std::make_shared<int const>(7));
    work();
    all.barrier();
  });
  CHECK(got == 7);
  CHECK(host::now_us() - begin > 2.9e6);
}

TEST_CASE("a failed rank ends the receives of the others, and what it left is forgotten by reset",
          "[peers]") {
  host::group group(2);
  host::mailbox<tensor> mailbox(group);
  std::string said[2];
  int got = 0;
  auto const begin = host::now_us();
  group.run([&](int rank) {
    host::peers<tensor> peers(mailbox, rank);
    host::lanes lanes({.rank = rank, .board = &group.board(), .peers = true});
    auto const send = [&peers](int value) {
      peers.send(activation(0, 0, 1), std::make_shared<int const>(value));
    };
    if (rank == 0) {
      lanes.run(lane::send_lower, label(attn, lane::send_lower), [&send] { send(1); });
      lanes.drain();
      lanes.run(lane::compute, label(mlp, lane::compute, 0, 1),
                [] { throw std::runtime_error("made to fail"); });
    } else {
      lanes.run(lane::receive_lower, label(attn, lane::receive_lower),
                [&peers] { peers.receive(activation(0, 1, 0)); });
    }
    try {
      lanes.drain();
    } catch (step_error const& error) {
      said[rank] = error.what();
    }
    group.reset();
    if (rank == 0)
      send(2);
    else
      got = *peers.receive(activation(0, 0, 0));
  });
  CHECK(host::now_us() - begin < 1e6);
  CHECK(said[0] == "rank 0: F.mlp of layer 0, microbatch 1 failed: made to fail");
  CHECK(said[0] == said[1]);
  CHECK(got == 2);
}

TEST_CASE("peers of another rank than the executor's are refused at once", "[peers]") {
  host::group group(2);
  host::mailbox<tensor> mailbox(group);
  host::peers<tensor> other(mailbox, 1);
  auto const refused = Catch::Matchers::Message("stretto::host::peers: rank 1 has a message for itself; make "
                                                "peers with the rank of its executor's sizes");
  CHECK_THROWS_MATCHES(other.send(activation(0, 0, 1), nullptr), std::invalid_argument, refused);
  CHECK_THROWS_MATCHES(other.receive(gradient(1, 0, 1)), std::invalid_argument, refused);
  CHECK_THROWS_MATCHES(
      host::peers<tensor>(mailbox, 2), std::invalid_argument,
      Catch::Matchers::Message("stretto::host::peers: there is no rank 2; the group has ranks 0 to 1"));
}

TEST_CASE("a mailbox or domain that a rank makes for itself alone is refused in one sentence",
          "[peers][group]") {
  host::group group(2);
  bool const is_domain = GENERATE(false, true);
  std::string said;
  try {
    group.run([&](int) {
      if (is_domain) return static_cast<void>(group.add_domain());
      host::mailbox<tensor> const mine(group);
    });
  } catch (step_error const& error) {
    said = error.what();
  }
  CHECK(said.ends_with(
      "failed: stretto::host::group: a mailbox or domain is made while the ranks run; make one for all of "
      "them before group.run"));
  host::mailbox<tensor> const after(group);
  CHECK(group.add_domain() == 1);
}

TEST_CASE("a group that fails knows nothing of mailboxes that are gone", "[peers][group]") {
  host::group group(1);
  auto const fails = [&group] { group.run([](int) { throw std::runtime_error("made to fail"); }); };
  {
    auto const gone = std::make_unique<host::mailbox<tensor>>(group);
    CHECK_THROWS_AS(fails(), step_error);
  }
  CHECK_THROWS_AS(fails(), step_error);
}
