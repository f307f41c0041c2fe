#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace train_moe {

/// One microbatch of one rank: ids and the ids that follow them, each [sequences * length], 64-bit integers.
struct token_batch {
  at::Tensor ids, targets;
};

/// What the phases of one rank see of the step in progress: its data in, its losses out. Slots are by microbatch, and
/// the auxiliary losses by layer and microbatch, so that ops of different microbatches never meet.
struct step_data {
  std::vector<token_batch> batches;
  std::vector<at::Tensor> losses; ///< mean over the tokens of the microbatch
  std::vector<std::vector<at::Tensor>> auxiliary; ///< of the layer, mean over its sequences, with its weight
  /// Slots of an expert for the choices of one rank in a microbatch; 0: as many as there are choices.
  int capacity = 0;
  at::Tensor slot_use; ///< [layers, microbatches, 2], see `stretto::torch::route_to_slots`
  double share = 1; ///< of one microbatch of one rank in the step's mean: 1 / (microbatches * ranks)

  void resize(int layers, int microbatches, int ranks) {
    auto const m = static_cast<std::size_t>(microbatches);
    batches.resize(m);
    losses.assign(m, {});
    auxiliary.assign(static_cast<std::size_t>(layers), std::vector<at::Tensor>(m));
    share = 1.0 / (microbatches * ranks);
    capacity = 0;
  }
  /// From now on, until the next `resize`.
  void use_slots(int of_an_expert, at::Device device) {
    capacity = of_an_expert;
    slot_use =
        at::zeros({static_cast<std::int64_t>(auxiliary.size()), static_cast<std::int64_t>(batches.size()), 2},
                  at::TensorOptions(device).dtype(at::kLong));
  }
};

} // namespace train_moe
