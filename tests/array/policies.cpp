#include "../../examples/own_tensors/model.hpp"

#include <stretto/adapters/host.hpp>
#include <stretto/executor.hpp>

#include <catch2/catch_test_macros.hpp>

#include <cmath>
#include <string>

using namespace stretto;

namespace {

using Comm = array::expert_parallel<host::communicator>;
using Network = own_tensors::network<Comm>;
using Model = Network::model;
using Bits = std::vector<std::vector<std::uint32_t>>;

/// Losses and gradients of every rank after one step over threads that sleep at random.
template <class S>
Bits step(int ranks, std::string const& picture, int microbatches, own_tensors::shape const& shape = {}) {
  Bits bits(static_cast<std::size_t>(ranks));
  host::group group(ranks);
  group.run([&](int rank) {
    auto exchange = group.communicator(rank);
    Comm comm(exchange, shape.experts / ranks);
    array::tensors arrays;
    Network net(picture, shape, arrays, comm, microbatches);
    net.next_batches(3);
    host::lane_options options;
    options.rank = rank;
    options.board = &group.board();
    options.shake_seed = 11;
    options.shake_us = 30;
    host::lanes lanes(options);
    executor run(S{}, backend{arrays, lanes}, net.layers, sizes{.microbatches = microbatches});
    run();
    bits[static_cast<std::size_t>(rank)] = net.bits();
  });
  return bits;
}

} // namespace

TEST_CASE("every policy gives the same bits, for one to three expert ranks",
          "[array][megatron-33][megatron-37]") {
  for (int const ranks : {1, 2, 3})
    for (std::string const picture : {"EMH", "EDMMH"})
      for (int const microbatches : {1, 4}) {
        CAPTURE(ranks, picture, microbatches);
        Bits const expected = step<Schedule<Model, Serial>>(ranks, picture, microbatches);
        CHECK(step<Schedule<Model, TwoStream1F1B>>(ranks, picture, microbatches) == expected);
        CHECK(step<Schedule<Model, TwoStream1F1B, SplitDW>>(ranks, picture, microbatches) == expected);
      }
}

TEST_CASE("one expert a rank, all experts chosen, experts without rows",
          "[array][megatron-01][megatron-21][pipelines-23][building-blocks-07]") {
  using Split = Schedule<Model, TwoStream1F1B, SplitDW>;
  own_tensors::shape all;
  all.experts = 3, all.top_k = 3;
  CHECK(step<Split>(3, "EMMH", 3, all) == step<Schedule<Model, Serial>>(3, "EMMH", 3, all));
  own_tensors::shape few;
  few.experts = 12, few.top_k = 1, few.words = 2;
  CHECK(step<Split>(3, "EMMH", 3, few) == step<Schedule<Model, Serial>>(3, "EMMH", 3, few));
}

TEST_CASE("gradients are those of finite differences", "[array]") {
  host::group group(1);
  auto exchange = group.communicator(0);
  own_tensors::shape const shape;
  Comm comm(exchange, shape.experts);
  array::tensors arrays;
  Network net("EMDH", shape, arrays, comm, 2);
  net.next_batches(1);
  host::lanes lanes;
  executor run(Schedule<Model, Serial>{}, backend{arrays, lanes}, net.layers, sizes{.microbatches = 2});
  run();
  std::vector<array::tensor> gradients;
  for (own_tensors::parameter const& p : net.parameters) gradients.push_back(p.gradient);
  auto loss = [&] {
    run();
    return (double{net.data.losses[0]} + double{net.data.losses[1]}) / 2;
  };
  int far = 0, seen = 0, nonzero = 0;
  for (std::size_t k = 0; k < net.parameters.size(); ++k) {
    float* const w = net.parameters[k].weight.data();
    for (std::size_t i = 0; i < gradients[k].size(); i += 5) {
      float const weight = w[i], apart = 1e-2F;
      w[i] = weight + apart;
      double const above = loss();
      w[i] = weight - apart;
      double const below = loss();
      w[i] = weight;
      double const slope = (above - below) / (2 * double{apart}), g = gradients[k].data()[i];
      ++seen;
      nonzero += std::abs(g) > 1e-3;
      far += std::abs(slope - g) > 2e-3 + 0.02 * std::abs(g);
    }
  }
  // A step may cross to other experts, where the loss jumps.
  CHECK(far <= seen / 20);
  CHECK(nonzero > seen / 3);
}
