#include "schedule_step.hpp"

#include <stretto/adapters/host/lanes.hpp>
#include <stretto/adapters/torch/tensors.hpp>
#include <stretto/adapters/torch/threads.hpp>

namespace train_moe {

std::unique_ptr<step_runner> make_executor_step(policy how, language_model& model, int rank,
                                                stretto::host::failure_board& board) {
  stretto::host::lane_options const options{.rank = rank, .board = &board, .spans = spans_of_a_step(model)};
  return make_schedule_step<stretto::torch::tensors, stretto::host::lanes>(
      how, model, options, [](stretto::lane) { stretto::torch::use_one_thread(); });
}

} // namespace train_moe
