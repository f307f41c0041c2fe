#pragma once

#include "step_runner.hpp"

#include <stretto/executor.hpp>
#include <stretto/schedule.hpp>

#include <cstddef>
#include <memory>
#include <utility>

namespace train_moe {

struct SerialStep : stretto::Schedule<language_model::types, stretto::Serial> {};
struct TwoStreamStep : stretto::Schedule<language_model::types, stretto::TwoStream1F1B> {};
struct SplitStep : stretto::Schedule<language_model::types, stretto::TwoStream1F1B, stretto::SplitDW> {};

/// More ops than one lane runs in a step: at most five nodes a layer, each with three passes.
inline std::size_t spans_of_a_step(language_model& model) {
  return static_cast<std::size_t>(model.layers().size()) * model.step().batches.size() * 15;
}

/// A schedule over the lanes of one rank.
template <class Schedule, class Tensors, class Lanes> class schedule_step : public step_runner {
public:
  template <class... OfLanes>
  explicit schedule_step(language_model& model, OfLanes&&... of_lanes)
      : lanes_(std::forward<OfLanes>(of_lanes)...),
        run_(Schedule{}, stretto::backend{tensors_, lanes_}, model.layers(),
             {.microbatches = static_cast<int>(model.step().batches.size())}) {}

  void run() override {
    lanes_.clear_timeline();
    run_();
  }
  std::vector<stretto::span> timeline() override { return lanes_.timeline(); }
  char const* pipeline() const override { return Schedule::rank_plan::name; }

private:
  Tensors tensors_;
  Lanes lanes_;
  stretto::executor<Schedule, Tensors, Lanes> run_;
};

/// `of_lanes` is what the lanes are made from.
template <class Tensors, class Lanes, class... OfLanes>
std::unique_ptr<step_runner> make_schedule_step(policy how, language_model& model, OfLanes&&... of_lanes) {
  auto const make = [&]<class Schedule>(Schedule) -> std::unique_ptr<step_runner> {
    return std::make_unique<schedule_step<Schedule, Tensors, Lanes>>(model, std::forward<OfLanes>(of_lanes)...);
  };
  switch (how) {
    case policy::serial: return make(SerialStep{});
    case policy::two_stream_1f1b: return make(TwoStreamStep{});
    default: return make(SplitStep{});
  }
}

}  // namespace train_moe
