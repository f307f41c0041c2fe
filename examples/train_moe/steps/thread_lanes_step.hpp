#pragma once

#include "../ranks/own_cores.hpp"
#include "schedule_step.hpp"

#include <stretto/adapters/host/lanes.hpp>
#include <stretto/adapters/torch/tensors.hpp>
#include <stretto/adapters/torch/threads.hpp>

namespace train_moe {

/// A schedule over lanes that are threads.
template <class Schedule> std::unique_ptr<step_runner> make_thread_lanes_step(step_parts const& of) {
  stretto::host::lane_options const options{.rank = of.place.rank,
                                            .board = &of.board,
                                            .peers = of.place.pp > 1,
                                            .look = of.look,
                                            .spans = spans_of_a_step(of.model)};
  using step = schedule_step<Schedule, stretto::torch::tensors, stretto::host::lanes, stage_peers>;
  auto const keep = [place = of.place, own = of.own_cores](core_user user) {
    if (own) keep_to_own_cores(place.rank, place.pp * place.ep, user);
  };
  auto made = std::make_unique<step>(of, options, [keep](stretto::lane on) {
    stretto::torch::use_one_thread();
    keep(on == stretto::lane::compute ? core_user::compute : core_user::other);
  });
  keep(core_user::other); // the caller, which issues the ops
  return made;
}

} // namespace train_moe
