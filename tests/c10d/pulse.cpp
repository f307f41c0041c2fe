#include "../../examples/train_moe/pulse.hpp"

#include <catch2/catch_test_macros.hpp>

using namespace std::chrono_literals;

namespace {

/// What the threads of a pulse look at, which outlives a test.
struct looked_at {
  std::atomic<std::uint64_t> own{0};
  std::atomic<std::int64_t> all{0};
  std::atomic<int> silences{0};
  std::atomic<bool> store_is_silent{false};
};

void watch(looked_at* what, std::chrono::milliseconds deadline) {
  train_moe::keep_pulse({.deadline = deadline,
                         .progress = [what] { return what->own.load(); },
                         .tell =
                             [what](bool went_on) {
                               while (what->store_is_silent) std::this_thread::sleep_for(5ms);
                               return what->all += went_on ? 1 : 0;
                             },
                         .on_silence = [what] { ++what->silences; }});
}

bool comes_true(std::atomic<int> const& count) {
  for (int i = 0; i < 3000 && count == 0; ++i) std::this_thread::sleep_for(10ms);
  return count != 0;
}

} // namespace

TEST_CASE("a pulse is silent only when neither this process nor another goes on", "[pulse]") {
  static looked_at works, hears, alone;
  for (auto* each : {&works, &hears, &alone}) watch(each, 1600ms);
  alone.store_is_silent = true;
  for (int i = 0; i < 50; ++i) {
    std::this_thread::sleep_for(100ms);
    ++works.own, ++hears.all, ++alone.own;
  }
  CHECK(works.silences == 0);
  CHECK(works.all > 2); // the others were told
  CHECK(hears.silences == 0);
  CHECK(alone.silences == 0); // nor does it need whoever keeps the numbers
  for (auto const* each : {&works, &hears, &alone}) CHECK(comes_true(each->silences));
}
