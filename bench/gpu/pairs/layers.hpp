#pragma once

#include "probe.hpp"

#include <stretto/adapters/cuda/follow.hpp>
#include <stretto/executor.hpp>

#include <stdexcept>

/// A layer of a mixture of experts as its GEMMs and all-to-alls: attention and experts are one GEMM forward and two backward.
namespace layer_pairs {

namespace st = stretto;

/// Tensors are buffers that last: nothing is made or given back in a step.
struct fixed_tensors {
  struct tensor {
    void* data = nullptr;
  };
  struct context {};
  tensor detach(tensor const& of) const { return of; }
  void add(tensor& sum, tensor const& term) const {
    if (sum.data && term.data) throw std::logic_error("layer_pairs: every value has one reader");
    if (term.data) sum = term;
  }
  void release(tensor&) const {}
};

struct hidden : st::value {};
struct tokens : st::value {};
struct expert_in : st::value {};
struct expert_out : st::value {};
struct loss : st::objective {};

inline cudaStream_t current() { return cuda::thread_stream{}.current(); }

struct Embed : st::Phase<st::attn> {
  using writes = st::values<hidden>;
  using saves = st::values<>;
  static constexpr bool has_weights = false;
  rank_work const* work;
  int last_microbatch;

  explicit Embed(rank_work const& of, int microbatches) : work(&of), last_microbatch(microbatches - 1) {}
  void forward(auto& io) { io[hidden{}] = {work->data->at(buffers::hidden, 0, io.microbatch())}; }
  void backward(auto& io) {
    if (io.microbatch() == last_microbatch) work->times->end(current());
  }
};

/// A phase of layer `layer` of the model.
template <st::phase_kind Kind> struct LayerPhase : st::Phase<Kind> {
  rank_work const* work;
  int layer;
  LayerPhase(rank_work const& of, int number) : work(&of), layer(number) {}

  fixed_tensors::tensor at(buffers::value what, auto& io, int behind = 0) const {
    return {work->data->at(what, layer + behind, io.microbatch())};
  }
  fixed_tensors::tensor gradient(buffers::value what, auto& io) const {
    return {work->data->gradient(what, layer, io.microbatch())};
  }
};

struct Attention : LayerPhase<st::attn> {
  using LayerPhase::LayerPhase;
  using reads = st::values<hidden>;
  using writes = st::values<tokens>;
  using saves = st::values<hidden>;
  void forward(auto& io) {
    work->times->before_attention(layer, io.microbatch(), current());
    io[tokens{}] = at(buffers::tokens, io);
    work->compute->forward(io[tokens{}].data, io[hidden{}].data, work->data->attn_weight(layer));
  }
  void backward_input(auto& io) {
    io.grad(hidden{}) = gradient(buffers::hidden, io);
    work->compute->input_gradient(io.grad(hidden{}).data, io.grad(tokens{}).data,
                                  work->data->attn_weight(layer));
  }
  void backward_weight(auto& io) {
    work->compute->weight_gradient(work->data->attn_sum(layer), io[hidden{}].data, io.grad(tokens{}).data);
  }
};

struct Dispatch : LayerPhase<st::dispatch> {
  using LayerPhase::LayerPhase;
  using reads = st::values<tokens>;
  using writes = st::values<expert_in>;
  using saves = st::values<>;
  void forward(auto& io) {
    io[expert_in{}] = at(buffers::expert_in, io);
    (*work->rows)(io[expert_in{}].data, io[tokens{}].data);
  }
  void backward(auto& io) {
    io.grad(tokens{}) = gradient(buffers::tokens, io);
    (*work->rows)(io.grad(tokens{}).data, io.grad(expert_in{}).data);
  }
};

struct Experts : LayerPhase<st::mlp> {
  using LayerPhase::LayerPhase;
  using reads = st::values<expert_in>;
  using writes = st::values<expert_out>;
  using saves = st::values<expert_in>;
  void forward(auto& io) {
    io[expert_out{}] = at(buffers::expert_out, io);
    work->compute->forward(io[expert_out{}].data, io[expert_in{}].data, work->data->mlp_weight(layer));
  }
  void backward_input(auto& io) {
    io.grad(expert_in{}) = gradient(buffers::expert_in, io);
    work->compute->input_gradient(io.grad(expert_in{}).data, io.grad(expert_out{}).data,
                                  work->data->mlp_weight(layer));
  }
  void backward_weight(auto& io) {
    work->compute->weight_gradient(work->data->mlp_sum(layer), io[expert_in{}].data,
                                   io.grad(expert_out{}).data);
  }
};

struct Combine : LayerPhase<st::combine> {
  using LayerPhase::LayerPhase;
  using reads = st::values<expert_out>;
  using writes = st::values<hidden>;
  using saves = st::values<>;
  void forward(auto& io) {
    io[hidden{}] = at(buffers::hidden, io, 1);
    (*work->rows)(io[hidden{}].data, io[expert_out{}].data);
  }
  void backward(auto& io) {
    work->times->before_backward_combine(layer, io.microbatch(), current());
    io.grad(expert_out{}) = gradient(buffers::expert_out, io);
    (*work->rows)(io.grad(expert_out{}).data, io.grad(hidden{}).data);
  }
};

/// Half of the square of what comes in, whose gradient is what comes in: nothing to compute.
struct Head : st::Phase<st::mlp> {
  using reads = st::values<hidden>;
  using writes = st::values<loss>;
  using saves = st::values<hidden>;
  static constexpr bool has_weights = false;
  void forward(auto& io) { io[loss{}] = io[hidden{}]; }
  void backward(auto& io) { io.grad(hidden{}) = io[hidden{}]; }
};

struct EmbedLayer : st::Block<Embed> {};
struct MoeLayer : st::Block<Attention, st::Detach, Dispatch, st::Detach, Experts, st::Detach, Combine> {};
struct HeadLayer : st::Block<Head> {};
struct Model : st::Blocks<EmbedLayer, MoeLayer, HeadLayer> {};

struct SerialStep : st::Schedule<Model, st::Serial, st::OneFOneBOverlapped> {};
struct TwoStreamStep : st::Schedule<Model, st::TwoStream1F1B> {};
struct SplitStep : st::Schedule<Model, st::TwoStream1F1B, st::SplitDW> {};

inline st::layer_list<Model> make_layers(rank_work const& work, shape const& of) {
  st::layer_list<Model> all;
  all.add(st::layer<EmbedLayer>(Embed(work, of.microbatches)));
  for (int i = 0; i < of.layers; ++i)
    all.add(st::layer<MoeLayer>(Attention(work, i), Dispatch(work, i), Experts(work, i), Combine(work, i)));
  all.add(st::layer<HeadLayer>(Head()));
  return all;
}

} // namespace layer_pairs
