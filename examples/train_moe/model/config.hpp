#pragma once

#include <cstdint>

namespace train_moe {

enum class number_type : unsigned char { f32, bf16, f64 };
enum class device_kind : unsigned char { cpu, cuda };

/// What a model is made of. All ranks of a run have the same.
struct model_config {
  int layers = 4; ///< without embedding and head
  int dense = 0; ///< of these, the first ones that are dense
  int hidden = 128;
  int heads = 4;
  int ffn = 128; ///< inner width of one expert; a dense layer has top_k + shared times this
  int experts = 8; ///< of all ranks together
  int top_k = 2;
  int shared = 1; ///< experts that every token visits
  int sequence = 128;
  double auxiliary = 0.01; ///< weight of the load-balancing loss
  bool forced_balance = false; ///< routing by random numbers, see `router`
  number_type type = number_type::f32;
  device_kind device = device_kind::cpu;
  std::uint64_t seed = 1;

  static constexpr int vocabulary = 256;
};

} // namespace train_moe
