#include <stretto/adapters/host.hpp>
#include <stretto/adapters/nccl.hpp>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <cstdlib>

// What needs no GPU: which ranks NCCL can join, and what is said of the others.

using namespace stretto;
using Catch::Matchers::ContainsSubstring;
using nccl::rank_settings;

namespace {

/// Ranks that NCCL can join, each a process with a GPU of its own.
std::vector<rank_settings> some_ranks(int count) {
  std::vector<rank_settings> ranks;
  for (int rank = 0; rank < count; ++rank) {
    rank_settings one;
    one.loaded = one.header;
    one.process = "process " + std::to_string(rank);
    one.gpu = "gpu " + std::to_string(rank);
    one.gpu_name = "NVIDIA H200 at 0000:0" + std::to_string(rank) + ":00.0";
    one.gpus = count;
    one.variables = {{"NCCL_NET", "Socket"}};
    ranks.push_back(one);
  }
  return ranks;
}

} // namespace

TEST_CASE("ranks with GPUs of their own and one environment can be joined", "[nccl]") {
  CHECK(nccl::problem_among(some_ranks(1)).empty());
  CHECK(nccl::problem_among(some_ranks(4)).empty());
}

TEST_CASE("what a rank is travels as text", "[nccl]") {
  auto one = some_ranks(1)[0];
  one.visible_gpus = "0,3";
  one.host_id = "h 7";
  one.variables["NCCL_ALGO"] = "a=b";
  auto const again = rank_settings::of_text(one.text());
  CHECK(again.text() == one.text());
  CHECK(again.loaded == NCCL_VERSION_CODE);
  CHECK(again.variables.at("NCCL_ALGO") == "a=b");
  CHECK(again.host_id == "h 7");
}

TEST_CASE("two ranks on one GPU are told what to set", "[nccl]") {
  auto ranks = some_ranks(3);
  ranks[2].gpu = ranks[1].gpu, ranks[2].gpu_name = ranks[1].gpu_name;
  ranks[2].gpus = 1, ranks[2].visible_gpus = "1";
  CHECK(nccl::problem_among(ranks) == "ranks 1 and 2 are both on the GPU NVIDIA H200 at 0000:01:00.0, and "
                                      "NCCL takes one rank a GPU: give each a GPU of "
                                      "its own (rank 2 sees 1, since CUDA_VISIBLE_DEVICES is 1), or let them "
                                      "share it: set NCCL_HOSTID=<rank> "
                                      "NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo");
  ranks[1].host_id = "1";
  CHECK_FALSE(nccl::problem_among(ranks).empty());
  ranks[2].host_id = "1";
  CHECK_FALSE(nccl::problem_among(ranks).empty());
  ranks[2].host_id = "2";
  CHECK(nccl::problem_among(ranks).empty());
  // Threads have one environment.
  ranks[2].process = ranks[1].process;
  CHECK_THAT(nccl::problem_among(ranks), ContainsSubstring("or make them processes, which may share one"));
}

TEST_CASE("versions of NCCL that do not go together are named", "[nccl]") {
  auto ranks = some_ranks(2);
  ranks[1].header = 22809, ranks[1].loaded = 22803;
  CHECK_THAT(nccl::problem_among(ranks),
             ContainsSubstring("rank 1 runs with NCCL 2.28.3 and was compiled with 2.28.9"));
  ranks[1].header = 22803, ranks[1].loaded = 22809, ranks[0].loaded = 22809;
  ranks[0].header = 22809;
  CHECK(nccl::problem_among(ranks).empty());
  ranks[1].loaded = 23007;
  CHECK_THAT(nccl::problem_among(ranks),
             ContainsSubstring("rank 1 runs with NCCL 2.30.7 and rank 0 with 2.28.9"));
  ranks[1].loaded = 30000;
  CHECK_THAT(nccl::problem_among(ranks),
             ContainsSubstring("rank 1 runs with NCCL 3.0.0 and was compiled with 2.28.3"));
  CHECK(nccl::version_text(2708) == "2.7.8");
}

TEST_CASE("a variable that ranks set differently is named with both values", "[nccl]") {
  auto ranks = some_ranks(3);
  ranks[2].variables["NCCL_NET"] = "IB";
  CHECK(nccl::problem_among(ranks) ==
        "NCCL_NET differs: rank 0 has 'Socket', rank 2 has 'IB'; give all ranks one environment");
  ranks[2].variables.erase("NCCL_NET");
  CHECK_THAT(nccl::problem_among(ranks), ContainsSubstring("rank 0 has 'Socket', rank 2 does not set it"));
  ranks = some_ranks(2);
  ranks[1].variables["NCCL_MAX_CTAS"] = "8";
  CHECK_THAT(nccl::problem_among(ranks), ContainsSubstring("rank 0 does not set it, rank 1 has '8'"));
}

TEST_CASE("of the environment only what ranks share is compared", "[nccl]") {
  ::setenv("NCCL_TESTED_HERE", "one\ntwo", 1);
  ::setenv("NCCL_HOSTID", "7", 1);
  ::setenv("NCCL_DEBUG_FILE", "mine", 1);
  auto const found = nccl::shared_variables();
  CHECK(found.at("NCCL_TESTED_HERE") == "one two");
  CHECK(found.count("NCCL_HOSTID") == 0);
  CHECK(found.count("NCCL_DEBUG_FILE") == 0);
  ::unsetenv("NCCL_TESTED_HERE");
  ::unsetenv("NCCL_HOSTID");
  ::unsetenv("NCCL_DEBUG_FILE");
}

TEST_CASE("texts of all ranks are gathered, whatever their lengths", "[nccl]") {
  host::group group(3);
  std::vector<std::vector<std::string>> found(3);
  group.run([&](int rank) {
    auto ranks = group.communicator(rank);
    found[static_cast<std::size_t>(rank)] =
        nccl::gather_texts(ranks, std::string(static_cast<std::size_t>(rank) * 3, 'x'));
  });
  for (auto const& each : found) CHECK(each == std::vector<std::string>{"", "xxx", "xxxxxx"});
}

TEST_CASE("a gate lets nobody in once it is closed, and says why", "[nccl]") {
  nccl::gate gate(std::chrono::seconds(1), std::chrono::seconds(1));
  { nccl::gate::pass const inside(gate, "a call", std::chrono::milliseconds(20)); }
  CHECK(gate.close("rank 2 has died"));
  CHECK_FALSE(gate.close("another reason"));
  CHECK_THROWS_WITH(nccl::gate::pass(gate, "a call", std::chrono::seconds(1)),
                    "NCCL was given up: rank 2 has died");
}

TEST_CASE("who stays inside of NCCL beyond the deadline is found, with the op", "[nccl]") {
  nccl::gate gate(std::chrono::milliseconds(20), std::chrono::seconds(1));
  detail::place_scope const here({3, 5});
  nccl::gate::pass const inside(gate, "a call", std::chrono::milliseconds(20));
  CHECK_FALSE(gate.calls.overdue());
  std::this_thread::sleep_for(std::chrono::milliseconds(40));
  auto const late = gate.calls.overdue();
  REQUIRE(late);
  CHECK(std::string(late->what) == "a call");
  CHECK(late->where.layer == 3);
  CHECK(late->where.microbatch == 5);
}
