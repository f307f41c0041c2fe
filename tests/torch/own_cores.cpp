#include <train_moe/ranks/own_cores.hpp>

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <set>
#include <system_error>
#include <thread>
#include <vector>

#include <sched.h>

namespace {

/// Of the calling thread, on any machine.
std::set<std::size_t> cores_of_thread() {
  train_moe::core_set may(64);
  std::set<std::size_t> cores;
  if (::sched_getaffinity(0, train_moe::bytes_of(may), may.data()) == 0)
    for (std::size_t core = 0; core < may.size() * CPU_SETSIZE; ++core)
      if (CPU_ISSET_S(core, train_moe::bytes_of(may), may.data())) cores.insert(core);
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

TEST_CASE("a machine may have more cores than one set of the system holds", "[torch]") {
  for (std::size_t const machine : {1UL, 1024UL, 1025UL, 3000UL, 8192UL, 20000UL}) {
    std::vector<std::size_t> const there{machine / 3, machine - 1};
    // As Linux does: a set that has no room for every core of the machine is refused.
    auto const affinity = [&](std::size_t bytes, cpu_set_t* cores) {
      if (bytes * 8 < machine) return errno = EINVAL, -1;
      for (auto const core : there) CPU_SET_S(core, bytes, cores);
      return 0;
    };
    auto const found = train_moe::cores_by(affinity);
    CHECK(std::set(found.begin(), found.end()) == std::set(there.begin(), there.end()));
    CHECK(std::is_sorted(found.begin(), found.end()));

    auto const made = train_moe::set_of(found);
    CHECK(made.size() == (machine + 1023) / 1024);
    CHECK(static_cast<std::size_t>(CPU_COUNT_S(train_moe::bytes_of(made), made.data())) == found.size());
    for (auto const core : found) CHECK(CPU_ISSET_S(core, train_moe::bytes_of(made), made.data()));
  }
  // What is wrong in another way, or never right, ends.
  for (int const problem : {EINVAL, EFAULT})
    CHECK_THROWS_AS(train_moe::cores_by([&](std::size_t, cpu_set_t*) { return errno = problem, -1; }),
                    std::system_error);
}
