#include "array/mishaps.hpp"

#include <catch2/matchers/catch_matchers_string.hpp>

using namespace mishaps;

namespace {

std::vector<mishap> const all_mishaps = {mishap::phase_throws_at_once, mishap::phase_throws_at_its_end,
                                         mishap::communicator_fails, mishap::rank_leaves};

grid const three_ranks{{"EMH"}, 3, 2};

} // namespace

TEST_CASE("Serial: whatever fails at whichever op, every rank ends with one error and can go on",
          "[failure]") {
  every_op_may_fail<Schedule<Model, Serial>>(three_ranks, all_mishaps);
}
TEST_CASE("TwoStream1F1B: whatever fails at whichever op, every rank ends with one error and can go on",
          "[failure]") {
  every_op_may_fail<Schedule<Model, TwoStream1F1B>>(three_ranks, all_mishaps);
}
TEST_CASE("SplitDW: whatever fails at whichever op, every rank ends with one error and can go on",
          "[failure]") {
  every_op_may_fail<Schedule<Model, TwoStream1F1B, SplitDW>>(three_ranks, all_mishaps);
}

TEST_CASE("the handle of another microbatch is refused with the places of both", "[failure]") {
  host::group group(1);
  failing_exchange exchange{group.communicator(0)};
  Comm comm(exchange, 2);
  array::tensors arrays;
  host::lanes lanes;
  Comm::handle handles[2];
  array::tensor rows[2];
  auto issue = [&](phase_kind phase, int microbatch, auto task) {
    lanes.run(lane::comm, op_label{phase, pass::forward, lane::comm, 4, microbatch}, task);
  };
  for (int m = 0; m < 2; ++m)
    issue(dispatch, m, [&, m] { rows[m] = comm.dispatch(arrays.zeros(3, 2), {{0, 1, 1}}, handles[m]); });
  issue(combine, 1, [&] { comm.combine(rows[1], handles[1]); });
  lanes.drain();
  // With the same number of rows nothing else would show it.
  issue(combine, 1, [&] { comm.combine(rows[1], handles[0]); });
  CHECK_THROWS_WITH(lanes.drain(),
                    Catch::Matchers::ContainsSubstring("F.combine of layer 4, microbatch 1 failed") &&
                        Catch::Matchers::ContainsSubstring("a handle of layer 4, microbatch 0 is used for "
                                                           "layer 4, microbatch 1"));
  // Who calls without lanes is not asked.
  comm.combine(rows[1], handles[0]);
}
