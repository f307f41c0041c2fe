#pragma once

#include "support/toy_train.hpp"

#include <stretto/adapters/null.hpp>
#include <stretto/adapters/sim.hpp>
#include <stretto/executor.hpp>
#include <stretto/schedule.hpp>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

/// Steps of small networks of toy numbers, in the order of the host and under an adversary.
namespace sim_test {

using bits = std::vector<std::uint64_t>;

/// The parameters, the losses and, for each pipeline rank, the layers of a network.
template <class Model> struct network {
  std::deque<toy::parameter> parameters{{0.9, 0}, {0.7, 0}, {1.3, 0}, {0.4, 0}, {0.8, 0}, {0.6, 0}};
  std::vector<double> losses;
  std::vector<stretto::layer_list<Model>> ranks;

  network(int count, int microbatches)
      : losses(static_cast<std::size_t>(microbatches)), ranks(static_cast<std::size_t>(count)) {}
  /// Gradients are 0 afterwards.
  bits results() {
    bits all;
    for (double const l : losses) all.push_back(std::bit_cast<std::uint64_t>(l));
    for (auto& p : parameters) all.push_back(std::bit_cast<std::uint64_t>(std::exchange(p.gradient, 0)));
    return all;
  }
};

/// A step of one rank, in the order of the host.
template <class Schedule> bits in_order(network<typename Schedule::model>& net, int microbatches) {
  toy::tensors<toy::number> numbers;
  stretto::null_lanes lanes;
  stretto::executor run(Schedule{}, stretto::backend{numbers, lanes}, net.ranks[0],
                        stretto::sizes{.microbatches = microbatches});
  run();
  return net.results();
}

/// What an adversary says of a step of all ranks that must give `expected`; empty: nothing is wrong.
template <class Schedule>
std::string attacked(network<typename Schedule::model>& net, int microbatches, bits const& expected) {
  auto const ranks = static_cast<int>(net.ranks.size());
  stretto::sim::world world(ranks);
  stretto::sim::tensors tensors;
  stretto::sim::peers::mail mail;
  stretto::sim::peers peers(mail);
  std::deque<stretto::sim::lanes> lanes;
  std::deque<stretto::executor<Schedule, stretto::sim::tensors, stretto::sim::lanes, stretto::sim::peers>>
      executors;
  std::vector<std::function<void()>> steps;
  for (int rank = 0; rank < ranks; ++rank) {
    lanes.emplace_back(world, rank);
    executors.emplace_back(Schedule{}, stretto::backend(tensors, lanes.back(), peers),
                           net.ranks[static_cast<std::size_t>(rank)],
                           stretto::sizes{.microbatches = microbatches, .ranks = ranks, .rank = rank});
    steps.push_back([&run = executors.back()] { run(); });
  }
  auto const step = [&] {
    world.step(steps);
    return net.results();
  };
  return stretto::sim::attack(world, step, expected, {.most_rows = 60});
}

} // namespace sim_test
