#include <train_moe/own_cores.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <iterator>
#include <set>
#include <thread>

#include <sched.h>

namespace {

std::set<std::size_t> cores_of_thread() {
  cpu_set_t may{};
  std::set<std::size_t> cores;
  if (::sched_getaffinity(0, sizeof may, &may) == 0)
    for (std::size_t core = 0; core < CPU_SETSIZE; ++core)
      if (CPU_ISSET(core, &may)) cores.insert(core);
  return cores;
}

} // namespace

TEST_CASE(
    "the cores of a process are shared out among its ranks: every one, none twice, as evenly as they go",
    "[torch]") {
  auto const all = cores_of_thread();
  REQUIRE(train_moe::usable_cores() == static_cast<int>(all.size()));
  for (int parts = 1; parts <= std::min(train_moe::usable_cores(), 5); ++parts) {
    std::set<std::size_t> seen;
    std::size_t fewest = all.size(), most = 0;
    for (int part = 0; part < parts; ++part) {
      std::set<std::size_t> mine, inherited;
      std::thread([&] {
        train_moe::keep_to_own_cores(part, parts);
        mine = cores_of_thread();
        std::thread([&] { inherited = cores_of_thread(); }).join();
      }).join();
      CHECK(inherited == mine);
      std::set<std::size_t> compute, other;
      std::thread([&] {
        train_moe::keep_to_own_cores(part, parts, train_moe::core_user::compute);
        compute = cores_of_thread();
        // Of a thread that has kept to less.
        train_moe::keep_to_own_cores(part, parts, train_moe::core_user::other);
        other = cores_of_thread();
      }).join();
      CHECK(compute == std::set{*mine.begin()});
      CHECK(other == (mine.size() == 1 ? mine : std::set(std::next(mine.begin()), mine.end())));
      for (auto const core : mine) CHECK(seen.insert(core).second);
      fewest = std::min(fewest, mine.size()), most = std::max(most, mine.size());
    }
    CHECK(seen == all);
    CHECK(most - fewest <= 1);
  }
  CHECK(cores_of_thread() == all);
}
