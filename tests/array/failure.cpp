#include "array/mishaps.hpp"

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
