#include "thread_lanes_step.hpp"

namespace train_moe {

std::unique_ptr<step_runner> make_two_stream_step(step_parts const& of) {
  return make_thread_lanes_step<TwoStreamStep>(of);
}

} // namespace train_moe
