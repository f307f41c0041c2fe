#include <stretto/adapters/null.hpp>

#include <catch2/catch_test_macros.hpp>

#include <type_traits>

using namespace stretto;

static_assert(std::is_empty_v<null_tensors> && std::is_empty_v<null_tensors::tensor> &&
              std::is_empty_v<null_tensors::context>);
static_assert(std::is_empty_v<null_lanes> && std::is_empty_v<null_lanes::event>);
static_assert(std::is_empty_v<null_comm> && std::is_empty_v<null_comm::handle>);

TEST_CASE("null lanes run an op when it is issued, counting lanes count it", "[null]") {
  op_label const op{mlp, pass::forward, lane::compute, 0, 0};
  int ran = 0;
  null_lanes::event mark;
  null_lanes const lanes;
  lanes.run(lane::compute, op, [&ran] { ++ran; });
  lanes.record(lane::compute, mark);
  lanes.wait(lane::comm, mark);
  CHECK(ran == 1);
  lanes.drain();

  counting_lanes counting;
  counting_lanes::event counted;
  for (int i = 0; i < 3; ++i) counting.run(lane::comm, op, [&ran] { ++ran; });
  counting.record(lane::comm, counted);
  counting.record(lane::comm, counted);
  counting.wait(lane::compute, counted);
  counting.drain();
  CHECK(ran == 4);
  CHECK(counting.runs == 3);
  CHECK(counting.records == 2);
  CHECK(counting.waits == 1);
  CHECK(counting.drains == 1);
}
