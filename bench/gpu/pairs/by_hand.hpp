#pragma once

#include "probe.hpp"

#include <stretto/adapters/cuda/follow.hpp>

namespace layer_pairs {

enum class order { serial, two_stream, split_dw };

/// The step of the executors as one would write it without them: the same calls in the same order, with events between two
/// streams where a call needs what the other stream made.
class by_hand {
public:
  by_hand(rank_work const& work, shape const& of, order how, cudaStream_t compute, cudaStream_t comm)
      : work_(work), shape_(of), how_(how), compute_(compute), comm_(how == order::serial ? compute : comm) {}

  /// Begins behind what was issued on the current stream.
  void operator()() {
    begun_.record(cuda::thread_stream{}.current());
    begun_.wait(compute_);
    if (comm_ != compute_) begun_.wait(comm_);
    int const last = shape_.layers - 1;
    for (int layer = 0; layer <= last; ++layer) forward(layer, 0);
    for (int microbatch = 1; microbatch < shape_.microbatches; ++microbatch) {
      turn();
      for (int layer = 0; layer <= last; ++layer) {
        if (how_ == order::serial) {
          forward(layer, microbatch);
          backward(last - layer, microbatch - 1);
        } else {
          pair(layer, microbatch, last - layer, microbatch - 1);
        }
      }
    }
    turn();
    for (int layer = last; layer >= 0; --layer) backward(layer, shape_.microbatches - 1);
    work_.times->end(compute_);
    cudaStream_t const outside = cuda::thread_stream{}.current();
    for (auto const each : {compute_, comm_})
      if (cuda::is_capturing(outside)) {
        ended_.record(each);
        ended_.wait(outside);
      } else {
        cuda::check(cudaStreamSynchronize(each), "cudaStreamSynchronize");
      }
  }

private:
  using on = buffers;

  void pair(int layer, int microbatch, int behind, int before) {
    if (behind < shape_.layers - 1) link(input_gradient_, comm_, compute_);
    backward_combine(behind, before);
    record(combined_gradient_, comm_);

    if (layer > 0) link(combined_, compute_, comm_);
    attention(layer, microbatch);
    record(attended_, compute_);

    link(combined_gradient_, compute_, comm_);
    experts_input(behind, before);
    if (how_ == order::two_stream) experts_weight(behind, before);
    record(expert_gradient_, compute_);

    link(attended_, comm_, compute_);
    dispatch(layer, microbatch);
    record(dispatched_, comm_);

    link(expert_gradient_, comm_, compute_);
    backward_dispatch(behind, before);
    record(dispatched_gradient_, comm_);

    if (how_ == order::split_dw) experts_weight(behind, before);

    link(dispatched_, compute_, comm_);
    experts(layer, microbatch);
    record(computed_, compute_);

    link(computed_, comm_, compute_);
    combine(layer, microbatch);
    record(combined_, comm_);

    link(dispatched_gradient_, compute_, comm_);
    attention_input(behind, before);
    if (how_ == order::two_stream) attention_weight(behind, before);
    record(input_gradient_, compute_);
    if (how_ == order::split_dw) attention_weight(behind, before);
  }

  void forward(int layer, int microbatch) {
    if (layer > 0) link(combined_, compute_, comm_);
    attention(layer, microbatch);
    record(attended_, compute_);
    link(attended_, comm_, compute_);
    dispatch(layer, microbatch);
    record(dispatched_, comm_);
    link(dispatched_, compute_, comm_);
    experts(layer, microbatch);
    record(computed_, compute_);
    link(computed_, comm_, compute_);
    combine(layer, microbatch);
    record(combined_, comm_);
  }

  void backward(int layer, int microbatch) {
    if (layer < shape_.layers - 1) link(input_gradient_, comm_, compute_);
    backward_combine(layer, microbatch);
    record(combined_gradient_, comm_);
    link(combined_gradient_, compute_, comm_);
    experts_input(layer, microbatch);
    if (how_ != order::split_dw) experts_weight(layer, microbatch);
    record(expert_gradient_, compute_);
    link(expert_gradient_, comm_, compute_);
    backward_dispatch(layer, microbatch);
    record(dispatched_gradient_, comm_);
    if (how_ == order::split_dw) experts_weight(layer, microbatch);
    link(dispatched_gradient_, compute_, comm_);
    attention_input(layer, microbatch);
    if (how_ != order::split_dw) attention_weight(layer, microbatch);
    record(input_gradient_, compute_);
    if (how_ == order::split_dw) attention_weight(layer, microbatch);
  }

  /// Where the head would compute the loss: it waits for the last combine, and the first combine of backward for it.
  void turn() {
    link(combined_, compute_, comm_);
    record(turned_, compute_);
    link(turned_, comm_, compute_);
  }

  void record(cuda::edge& mark, cudaStream_t stream) {
    if (comm_ != compute_) mark.record(stream);
  }
  void link(cuda::edge const& mark, cudaStream_t waits, cudaStream_t recorded) {
    if (waits != recorded) mark.wait(waits);
  }
  void move(void* to, void const* from) {
    auto const here = cuda::thread_stream{}.enter(comm_);
    (*work_.rows)(to, from);
  }

  void attention(int layer, int microbatch) {
    work_.times->before_attention(layer, microbatch, compute_);
    work_.compute->forward(data().at(on::tokens, layer, microbatch), data().at(on::hidden, layer, microbatch),
                           data().attn_weight(layer));
  }
  void dispatch(int layer, int microbatch) {
    move(data().at(on::expert_in, layer, microbatch), data().at(on::tokens, layer, microbatch));
  }
  void experts(int layer, int microbatch) {
    work_.compute->forward(data().at(on::expert_out, layer, microbatch),
                           data().at(on::expert_in, layer, microbatch), data().mlp_weight(layer));
  }
  void combine(int layer, int microbatch) {
    move(data().at(on::hidden, layer + 1, microbatch), data().at(on::expert_out, layer, microbatch));
  }
  void backward_combine(int layer, int microbatch) {
    work_.times->before_backward_combine(layer, microbatch, comm_);
    bool const is_last = layer == shape_.layers - 1;
    move(data().gradient(on::expert_out, layer, microbatch),
         is_last ? data().at(on::hidden, layer + 1, microbatch)
                 : data().gradient(on::hidden, layer + 1, microbatch));
  }
  void experts_input(int layer, int microbatch) {
    work_.compute->input_gradient(data().gradient(on::expert_in, layer, microbatch),
                                  data().gradient(on::expert_out, layer, microbatch),
                                  data().mlp_weight(layer));
  }
  void experts_weight(int layer, int microbatch) {
    work_.compute->weight_gradient(data().mlp_sum(layer), data().at(on::expert_in, layer, microbatch),
                                   data().gradient(on::expert_out, layer, microbatch));
  }
  void backward_dispatch(int layer, int microbatch) {
    move(data().gradient(on::tokens, layer, microbatch), data().gradient(on::expert_in, layer, microbatch));
  }
  void attention_input(int layer, int microbatch) {
    work_.compute->input_gradient(data().gradient(on::hidden, layer, microbatch),
                                  data().gradient(on::tokens, layer, microbatch), data().attn_weight(layer));
  }
  void attention_weight(int layer, int microbatch) {
    work_.compute->weight_gradient(data().attn_sum(layer), data().at(on::hidden, layer, microbatch),
                                   data().gradient(on::tokens, layer, microbatch));
  }
  buffers const& data() const { return *work_.data; }

  rank_work const& work_;
  shape shape_;
  order how_;
  cudaStream_t compute_, comm_;
  cuda::edge begun_, ended_, attended_, dispatched_, computed_, combined_, turned_;
  cuda::edge combined_gradient_, expert_gradient_, dispatched_gradient_, input_gradient_;
};

} // namespace layer_pairs
