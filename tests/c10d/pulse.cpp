#include "../../examples/train_moe/ranks/pulse.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace std::chrono_literals;

TEST_CASE("a pulse is silent only when neither this process nor another goes on for a deadline", "[pulse]") {
  constexpr int parts = train_moe::quiet_parts::of_a_deadline;
  std::uint64_t own = 5;
  std::int64_t others = 7;
  train_moe::quiet_parts seen(own, others);
  auto const silent_within = [&](int count) {
    bool silent = false;
    for (int i = 0; i < count; ++i) silent = seen.add(own, others) || silent;
    return silent;
  };
  for (int round = 0; round < 20; ++round) {
    CHECK_FALSE(silent_within(parts));
    // Either is enough, and so is that both change at once.
    own += round % 3 != 1;
    others += round % 3 != 0;
    CHECK_FALSE(seen.add(own, others));
  }
  CHECK_FALSE(silent_within(parts));
  CHECK(seen.add(own, others));
  CHECK(seen.add(own, others));
  ++own;
  CHECK_FALSE(silent_within(parts + 1));
}

namespace {

/// What the threads of a pulse look at, which outlives a test.
struct looked_at {
  std::atomic<std::uint64_t> own{0};
  std::atomic<std::int64_t> told{0};
  std::atomic<int> silences{0};
  std::atomic<bool> store_is_silent{false};
};

void watch(looked_at* what) {
  train_moe::keep_pulse({.deadline = 160ms,
                         .progress = [what] { return what->own.load(); },
                         .tell =
                             [what](bool went_on) {
                               while (what->store_is_silent) std::this_thread::sleep_for(5ms);
                               return what->told += went_on ? 1 : 0;
                             },
                         .on_silence = [what] { ++what->silences; }});
}

template <class Count> bool comes_true(Count const& count) {
  for (int i = 0; i < 3000 && count == 0; ++i) std::this_thread::sleep_for(10ms);
  return count != 0;
}

} // namespace

TEST_CASE("a pulse tells others that it goes on, and of silence, whoever keeps the numbers", "[pulse]") {
  static looked_at works, alone;
  alone.store_is_silent = true;
  watch(&works), watch(&alone);
  for (int i = 0; i < 3000 && works.told == 0; ++i) {
    ++works.own;
    std::this_thread::sleep_for(10ms);
  }
  CHECK(works.told > 0);
  CHECK(comes_true(works.silences));
  CHECK(comes_true(alone.silences));
}
