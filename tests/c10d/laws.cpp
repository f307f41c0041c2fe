#include "laws/peers.hpp"
#include "laws/row_exchange.hpp"

#include <stretto/adapters/c10d.hpp>
#include <stretto/adapters/c10d/gloo.hpp>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <algorithm>
#include <chrono>
#include <deque>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <unistd.h>

namespace sc = stretto::c10d;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Calls `body(rank, groups, in_flight)` on a thread for each rank; groups meet over one store, as those of processes do.
/// Returns what the ranks threw.
template <class Body>
std::vector<std::string> run_ranks(int ranks, Body const& body,
                                   std::chrono::milliseconds deadline = std::chrono::seconds(20)) {
  auto const store = c10::make_intrusive<c10d::HashStore>();
  std::vector<std::string> thrown(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        sc::waiting in_flight;
        body(rank, sc::gloo_groups(store, "127.0.0.1", deadline), in_flight);
      } catch (std::exception const& error) {
        thrown[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  for (auto& each : threads) each.join();
  return thrown;
}

bool none(std::vector<std::string> const& thrown) {
  for (auto const& each : thrown)
    if (!each.empty()) UNSCOPED_INFO(each);
  return std::all_of(thrown.begin(), thrown.end(), [](auto const& each) { return each.empty(); });
}

void add_routes(sc::peers& peers, int rank, sc::gloo_groups const& groups) {
  for (int from = 0; from < 2; ++from)
    for (bool const gradient : {false, true})
      peers.add({from, 1 - from, gradient},
                groups.make(std::to_string(from) + (gradient ? "gradients" : "activations"),
                            from == rank ? 0 : 1, 2));
}

} // namespace

TEST_CASE("c10d::communicator keeps the laws of row exchanges, and adds up in rank order", "[c10d]") {
  for (int const ranks : {1, 2, 3}) {
    std::deque<bool> kept(static_cast<std::size_t>(ranks)); // no bits shared between threads
    CHECK(none(run_ranks(ranks, [&](int rank, sc::gloo_groups const& groups, sc::waiting& in_flight) {
      sc::communicator comm;
      if (ranks > 1) comm = {groups.make("all", rank, ranks), in_flight};
      bool good = laws::counts_are_transposed(comm) && laws::rows_arrive_in_rank_order(comm) &&
                  laws::calls_are_apart(comm);
      // More than goes in one piece, and sums that depend on their order.
      std::vector<float> sum(300'000, rank == 0 ? 1e8F : rank == 1 ? -1e8F : 1.0F);
      comm.all_reduce(sum.data(), sum.size());
      float expected = 1e8F;
      for (int other = 1; other < ranks; ++other) expected += other == 1 ? -1e8F : 1.0F;
      for (float const each : sum) good = good && each == expected;
      std::vector<int> all(static_cast<std::size_t>(ranks));
      comm.all_gather(&rank, 1, all.data());
      for (int other = 0; other < ranks; ++other)
        good = good && all[static_cast<std::size_t>(other)] == other;
      comm.barrier();
      // To itself other rows than it makes room for.
      std::vector<int> out(static_cast<std::size_t>(ranks)), in = out;
      out[static_cast<std::size_t>(rank)] = 2, in[static_cast<std::size_t>(rank)] = 3;
      try {
        comm.all_to_all(nullptr, out.data(), nullptr, in.data(), 8);
        good = false;
      } catch (std::invalid_argument const&) {
      }
      kept[static_cast<std::size_t>(rank)] = good;
    })));
    for (bool const each : kept) CHECK(each);
  }
}

TEST_CASE("c10d::peers keeps the laws of messages", "[c10d]") {
  std::deque<bool> kept(2), shaped(2);
  CHECK(none(run_ranks(2, [&](int rank, sc::gloo_groups const& groups, sc::waiting& in_flight) {
    sc::peers peers(rank, in_flight);
    add_routes(peers, rank, groups);
    auto const make = [](int number) { return at::full({1}, number, at::kInt); };
    auto const read = [](at::Tensor const& t) { return t.defined() ? t.item<int>() : -1; };
    int const other = 1 - rank;
    bool good = laws::messages_are_found_by_name(peers, rank, other, make, read);
    good = laws::the_oldest_comes_first(peers, rank, other, make, read) && good;
    good = laws::an_empty_tensor_arrives_empty(peers, rank, other, make, read) && good;
    good =
        laws::what_arrives_is_its_own(peers, rank, other, make, read, [](at::Tensor& t) { t.fill_(99); }) &&
        good;
    kept[static_cast<std::size_t>(rank)] = good;

    // Whatever the type and the shape; elements arrive in order.
    bool same = true;
    for (auto const& sent : {at::arange(12, at::kFloat).view({3, 4}).t(), at::ones({2, 0, 5}, at::kDouble),
                             at::arange(7, at::kFloat).to(at::kBFloat16), at::scalar_tensor(3.0)}) {
      peers.send({false, 9, 0, 0, other}, sent);
      auto const got = peers.receive({false, 9, 0, 0, other});
      same = same && got.sizes() == sent.sizes() && got.scalar_type() == sent.scalar_type() &&
             at::equal(got, sent);
    }
    shaped[static_cast<std::size_t>(rank)] = same;
  })));
  for (bool const each : kept) CHECK(each);
  for (bool const each : shaped) CHECK(each);
}

TEST_CASE("more dimensions than a message has room for are refused at both ends", "[c10d]") {
  auto const thrown = run_ranks(2, [&](int rank, sc::gloo_groups const& groups, sc::waiting& in_flight) {
    auto const group = groups.make("one way", rank, 2);
    sc::peers peers(rank, in_flight);
    peers.add({0, 1, false}, group);
    if (rank == 1) {
      peers.receive({false, 9, 1, 0, 0});
      return;
    }
    // What another program may send: a header that says so. Of any parts, the first of a route has tag 1.
    std::vector<at::Tensor> header{at::zeros({12}, at::kLong)};
    auto* const fields = header[0].mutable_data_ptr<std::int64_t>();
    fields[1] = 1, fields[3] = 9;
    group->send(header, 1, 1)->wait();
    peers.send({false, 9, 1, 0, 1}, at::ones({1, 1, 1, 1, 1, 1, 1, 1, 1}));
  });
  for (auto const& each : thrown)
    CHECK_THAT(each, ContainsSubstring("a tensor of 9 dimensions, and the most are 8"));
}

TEST_CASE("a rank that does not come ends the calls of the others at the deadline", "[c10d]") {
  auto const thrown = run_ranks(
      2,
      [&](int rank, sc::gloo_groups const& groups, sc::waiting& in_flight) {
        sc::peers peers(rank, in_flight);
        add_routes(peers, rank, groups);
        sc::communicator comm(groups.make("all", rank, 2), in_flight);
        if (rank == 0)
          peers.receive({false, 1, 3, 0, 1});
        else
          comm.barrier();
      },
      std::chrono::seconds(5));
  CHECK_THAT(thrown[0], ContainsSubstring("message from rank 1 of the pipeline: "));
  CHECK_THAT(thrown[1], ContainsSubstring("barrier: "));
}

TEST_CASE("giving up ends a receive while the other rank is there", "[c10d]") {
  std::latch ended(1);
  auto const thrown = run_ranks(2, [&](int rank, sc::gloo_groups const& groups, sc::waiting& in_flight) {
    sc::peers peers(rank, in_flight);
    add_routes(peers, rank, groups);
    if (rank == 1) return ended.wait();
    std::thread other([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      in_flight.give_up();
    });
    try {
      peers.receive({false, 1, 3, 0, 1});
    } catch (sc::process_error const& first) {
      other.join();
      ended.count_down();
      throw std::runtime_error(first.what());
    }
    other.join();
    ended.count_down();
  });
  CHECK_THAT(thrown[0], ContainsSubstring("message from rank 1 of the pipeline: ") &&
                            ContainsSubstring("the step was given up"));
}

TEST_CASE("a group is refused where its connections would find no open files", "[c10d]") {
  sc::gloo_groups const groups(c10::make_intrusive<c10d::HashStore>(), "127.0.0.1", std::chrono::seconds(20));
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  int const next = ::dup(0);
  REQUIRE(next >= 0);
  ::close(next);
  rlimit few = before;
  few.rlim_cur = static_cast<rlim_t>(next) + 2;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  std::string said;
  try {
    groups.make("few", 0, 8);
  } catch (std::exception const& error) {
    said = error.what();
  }
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK_THAT(said, ContainsSubstring(
                       "a Gloo group of 8 ranks takes 11 open files, of which this process may open ") &&
                       ContainsSubstring("; raise ulimit -n"));
  // What was tried out is open no longer.
  int const after = ::dup(0);
  CHECK(after == next);
  ::close(after);
}
