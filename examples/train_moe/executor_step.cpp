#include "step_runner.hpp"

#include <stretto/adapters/host/lanes.hpp>
#include <stretto/adapters/torch/tensors.hpp>
#include <stretto/adapters/torch/threads.hpp>
#include <stretto/executor.hpp>
#include <stretto/schedule.hpp>

#include <cstddef>

namespace train_moe {
namespace {

using model_types = language_model::types;
struct SerialStep : stretto::Schedule<model_types, stretto::Serial> {};
struct TwoStreamStep : stretto::Schedule<model_types, stretto::TwoStream1F1B> {};
struct SplitStep : stretto::Schedule<model_types, stretto::TwoStream1F1B, stretto::SplitDW> {};

/// More ops than one lane runs in a step: at most five nodes a layer, each with three passes.
std::size_t spans_of_a_step(language_model& model) {
  return static_cast<std::size_t>(model.layers().size()) * model.step().batches.size() * 15;
}

template <class Schedule> class executor_step : public step_runner {
public:
  executor_step(language_model& model, int rank, stretto::host::failure_board& board)
      : lanes_({.rank = rank, .board = &board, .spans = spans_of_a_step(model)},
               [](stretto::lane) { stretto::torch::use_one_thread(); }),
        run_(Schedule{}, stretto::backend{tensors_, lanes_}, model.layers(),
             {.microbatches = static_cast<int>(model.step().batches.size())}) {}

  void run() override {
    lanes_.clear_timeline();
    run_();
  }
  std::vector<stretto::span> timeline() const override { return lanes_.timeline(); }
  char const* pipeline() const override { return Schedule::rank_plan::name; }

private:
  stretto::torch::tensors tensors_;
  stretto::host::lanes lanes_;
  stretto::executor<Schedule, stretto::torch::tensors, stretto::host::lanes> run_;
};

}  // namespace

std::unique_ptr<step_runner> make_executor_step(policy how, language_model& model, int rank,
                                                stretto::host::failure_board& board) {
  switch (how) {
    case policy::serial: return std::make_unique<executor_step<SerialStep>>(model, rank, board);
    case policy::two_stream_1f1b: return std::make_unique<executor_step<TwoStreamStep>>(model, rank, board);
    default: return std::make_unique<executor_step<SplitStep>>(model, rank, board);
  }
}

}  // namespace train_moe
