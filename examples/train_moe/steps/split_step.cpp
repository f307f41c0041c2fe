#include "thread_lanes_step.hpp"

namespace train_moe {

std::unique_ptr<step_runner> make_split_step(step_parts const& of) {
  return make_thread_lanes_step<SplitStep>(of);
}

} // namespace train_moe
