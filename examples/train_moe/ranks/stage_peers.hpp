#pragma once

#include <stretto/adapter.hpp>

#include <ATen/ATen.h>

namespace train_moe {

/// Messages between the stages of one pipeline, whatever carries them: one type, so that every schedule is compiled once. In
/// a message `peer` is the rank within the pipeline.
class stage_peers {
public:
  using tensor = at::Tensor;
  virtual ~stage_peers() = default;
  virtual void send(stretto::message const& about, at::Tensor const& content) = 0;
  virtual at::Tensor receive(stretto::message const& about) = 0;
};

/// Of a rank that has all stages: nobody is there to ask.
class no_stage_peers : public stage_peers {
public:
  void send(stretto::message const&, at::Tensor const&) override {}
  at::Tensor receive(stretto::message const&) override { return {}; }
};

static_assert(stretto::peer_adapter<stage_peers>);

} // namespace train_moe
