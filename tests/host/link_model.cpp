#include "support.hpp"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <vector>

using namespace test;

TEST_CASE("a link's time is its latency and the larger direction at its bandwidth", "[link]") {
  host::link_model const link{.gigabits_per_second = 8, .microseconds = 5};
  CHECK(link.transfer_us(0, 0) == 5);
  CHECK(link.transfer_us(1000, 0) == Catch::Approx(6)); // 8 Gb/s is 1000 bytes a microsecond
  CHECK(link.transfer_us(1000, 3000) == Catch::Approx(8));
  CHECK(host::link_model{.microseconds = 7}.transfer_us(1 << 30, 0) == 7);
  CHECK_FALSE(host::link_model{}.present());
  CHECK(describe(link) == "link modelled: 8 Gb/s, 5 us");
  CHECK(describe(host::link_model{.gigabits_per_second = 0.25}) == "link modelled: 0.25 Gb/s, 0 us");
  CHECK(describe(host::link_model{.microseconds = 100}) == "link modelled: no limit of bandwidth, 100 us");
  CHECK(describe(host::link_model{}) == "no link modelled");
}

TEST_CASE("an all-to-all takes at least as long as its link, without the own rows, from when all have come",
          "[link]") {
  // 0.08 Gb/s is 10 bytes a microsecond: rank 0 sends 40000 bytes to rank 1 (4 ms) and receives 20000.
  host::group group(2, {.link = {.gigabits_per_second = 0.08, .microseconds = 1000}});
  std::vector<int> const rows[2] = {{900, 40}, {20, 700}};
  std::vector<int> const expected[2] = {{900, 20}, {40, 700}};
  double modelled[2] = {}, took[2] = {}, came[2] = {}, ended[2] = {};
  group.run([&](int rank) {
    auto comm = group.communicator(rank);
    std::vector<char> send(1000 * 1000), receive(1000 * 1000);
    std::vector<int> counts(2);
    comm.exchange_counts(rows[rank].data(), counts.data());
    comm.barrier();
    if (rank == 1) sleep_ms(20);
    came[rank] = host::now_us();
    for (int i = 0; i < 3; ++i)
      comm.all_to_all(send.data(), rows[rank].data(), receive.data(), expected[rank].data(), 1000);
    ended[rank] = host::now_us();
    took[rank] = ended[rank] - came[rank];
    modelled[rank] = comm.modelled_us();
  });
  for (int rank = 0; rank < 2; ++rank) {
    CHECK(modelled[rank] == Catch::Approx(3 * 5000));
    CHECK(ended[rank] - came[1] >= 3 * 5000 - 1);
  }
  CHECK(took[0] >= 20000 + 3 * 5000 - 1000);
}

TEST_CASE("without a modelled link nothing is added", "[link]") {
  host::group group(2);
  double modelled[2] = {1, 1};
  group.run([&](int rank) {
    auto comm = group.communicator(rank);
    int const rows[] = {1, 1};
    char const send[2] = {};
    char receive[2];
    comm.all_to_all(send, rows, receive, rows, 1);
    modelled[rank] = comm.modelled_us();
  });
  CHECK(modelled[0] == 0);
  CHECK(modelled[1] == 0);
}

TEST_CASE("a slow link does not outlast the step of a group that has failed", "[link]") {
  host::group group(2, {.link = {.microseconds = 20e6}});
  auto const begin = host::now_us();
  CHECK_THROWS_AS(group.run([&](int rank) {
    auto comm = group.communicator(rank);
    int const rows[] = {0, 0};
    if (rank == 0) {
      comm.all_to_all(nullptr, rows, nullptr, rows, 1);
      return;
    }
    std::thread failing([&] {
      sleep_ms(30);
      group.abort("made to fail", 1);
    });
    comm.all_to_all(nullptr, rows, nullptr, rows, 1);
    failing.join();
  }),
                  step_error);
  CHECK(host::now_us() - begin < 1e6);
}

TEST_CASE("a precise sleep never ends early", "[link]") {
  std::vector<double> late;
  for (int i = 0; i < 100; ++i) {
    auto const until = host::clock::now() + std::chrono::microseconds(100 + 10 * i);
    host::sleep_precisely_until(until);
    late.push_back(std::chrono::duration<double, std::micro>(host::clock::now() - until).count());
  }
  CHECK(*std::min_element(late.begin(), late.end()) >= 0);
  host::sleep_precisely_until(host::clock::now() - std::chrono::seconds(1));
}
