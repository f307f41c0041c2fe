#include "table_model.hpp"

#include <train_moe/memory.hpp>

#include <catch2/catch_test_macros.hpp>

using namespace table_test;

namespace {

template <class... Policies> void tensors_live_as_long_as_the_table_says(char const* policy) {
  train_moe::count_tensor_memory();
  c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  for (int const layers : {1, 3})
    for (int const microbatches : {1, 2, 4}) {
      CAPTURE(policy, layers, microbatches);
      memory_test::watched_lanes lanes;
      shape const s{96, 32, at::kCPU};
      auto const found =
          watch<Schedule<Network, Policies...>>(s, layers, microbatches, lanes, train_moe::live_tensor_bytes);
      CHECK(found.measured == found.expected);
      CHECK(found.left == 0);
    }
}

} // namespace

TEST_CASE("after every op live the tensors that the table says", "[torch][memory]") {
  SECTION("Serial") { tensors_live_as_long_as_the_table_says<Serial>("Serial"); }
  SECTION("TwoStream1F1B, SplitDW") {
    tensors_live_as_long_as_the_table_says<TwoStream1F1B, SplitDW>("TwoStream1F1B, SplitDW");
  }
}
