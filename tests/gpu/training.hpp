#pragma once

#include "support/text_file.hpp"
#include "under_a_tool.hpp"

#include <train_moe/corpus.hpp>
#include <train_moe/gpu/cuda_device.hpp>
#include <train_moe/run_device.hpp>
#include <train_moe/trainer.hpp>

/// Small runs of the trainer on GPUs.
namespace test {

inline train_moe::options small() {
  train_moe::options o;
  o.ep = 2;
  o.microbatches = times(3, 2);
  o.batch = 2;
  o.steps = times(3, 2);
  o.deadline = times(o.deadline, 600);
  auto& m = o.model;
  m.device = train_moe::device_kind::cuda;
  m.layers = times(3, 2);
  m.dense = 1;
  m.hidden = 64;
  m.heads = 2;
  m.ffn = 32;
  m.experts = 4;
  m.sequence = 24;
  return o;
}

/// Under a tool all but the policies that run backward whole and in two halves.
inline bool is_left_out(train_moe::policy how) {
  return under_a_tool() && how != train_moe::policy::two_stream_1f1b && how != train_moe::policy::split_dw;
}

inline train_moe::run_result run(train_moe::options const& o, train_moe::policy how,
                                 train_moe::corpus const& text) {
  if (!train_moe::cuda_device()) train_moe::cuda_device() = &train_moe::all_gpus();
  train_moe::prepare(o);
  return train_moe::train(o, how, text, [](train_moe::progress const&) {});
}

inline bool same(train_moe::run_result const& a, train_moe::run_result const& b) {
  return a.losses == b.losses && a.gradient_digest == b.gradient_digest && a.held_out_loss == b.held_out_loss;
}

} // namespace test
