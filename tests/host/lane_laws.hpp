#pragma once

#include "support.hpp"

#include "../laws/lanes.hpp"

namespace test {

using laws::a_later_record_leaves_the_wait_alone, laws::random_waits_hold, laws::runs_in_order_of_issue,
    laws::trivial_waits_go_through, laws::wait_binds_to_the_last_record, laws::wait_orders;

} // namespace test
