#pragma once

#include "step_runner.hpp"

#include <stretto/executor.hpp>
#include <stretto/pipelines/dual_pipe_v.hpp>
#include <stretto/schedule.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace train_moe {

// The pipeline here says only that there are bodies of pairs and of halves; which plan runs on them is run-time data.
struct SerialStep : stretto::Schedule<language_model::types, stretto::Serial, stretto::DualPipeV> {};
struct TwoStreamStep : stretto::Schedule<language_model::types, stretto::TwoStream1F1B, stretto::DualPipeV> {
};
struct SplitStep
    : stretto::Schedule<language_model::types, stretto::TwoStream1F1B, stretto::SplitDW, stretto::DualPipeV> {
};

/// More ops than one lane runs in a step: at most five nodes a layer, each with three passes, and the messages of chunks.
inline std::size_t spans_of_a_step(language_model& model) {
  auto const of_a_microbatch = model.layers().size() * 15 + model.layers().chunks() * 2;
  return static_cast<std::size_t>(of_a_microbatch) * model.step().batches.size();
}

/// A schedule over the lanes of one rank. `Peers` is `stage_peers`, or `no_peers` where there is one pipeline rank.
template <class Schedule, class Tensors, class Lanes, class Peers> class schedule_step : public step_runner {
public:
  template <class... OfLanes>
  explicit schedule_step(step_parts const& of, OfLanes&&... of_lanes)
      : lanes_(std::forward<OfLanes>(of_lanes)...),
        run_(Schedule{}, adapters(of), of.model.layers(), of.plan, of.place.pipeline_rank()) {}

  void run() override {
    lanes_.clear_timeline();
    run_();
  }
  std::vector<stretto::span> timeline() override { return lanes_.timeline(); }

private:
  stretto::backend<Tensors, Lanes, Peers> adapters(step_parts const& of) {
    if constexpr (std::is_same_v<Peers, stage_peers>)
      return {tensors_, lanes_, of.peers};
    else
      return {tensors_, lanes_};
  }

  Tensors tensors_;
  Lanes lanes_;
  stretto::executor<Schedule, Tensors, Lanes, Peers> run_;
};

/// The schedule of a policy; `of_lanes` is what the lanes are made from.
template <class Tensors, class Lanes, class Peers, class... OfLanes>
std::unique_ptr<step_runner> make_schedule_step(policy how, step_parts const& of, OfLanes&&... of_lanes) {
  auto const make = [&]<class Schedule>(Schedule) -> std::unique_ptr<step_runner> {
    using step = schedule_step<Schedule, Tensors, Lanes, Peers>;
    return std::make_unique<step>(of, std::forward<OfLanes>(of_lanes)...);
  };
  switch (how) {
  case policy::serial:
    return make(SerialStep{});
  case policy::two_stream_1f1b:
    return make(TwoStreamStep{});
  default:
    return make(SplitStep{});
  }
}

} // namespace train_moe
