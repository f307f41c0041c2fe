#pragma once

#include "support/toy_numbers.hpp"

#include <stretto/block.hpp>

#include <cmath>
#include <cstdint>
#include <exception>
#include <utility>

/// The values, phases and layers of the toy model.
namespace toy {

namespace st = stretto;

struct hidden : st::value {};
struct tokens : st::value {};
struct probs : st::value {};
struct residual : st::value {};
struct expert_in : st::value {};
struct expert_out : st::value {};
struct shared_out : st::value {};
struct normed : st::value {};
struct loss : st::objective {};
struct routing : st::metadata {
  using type = ticket;
};
struct handle : st::metadata {
  using type = ticket;
};

struct parameter {
  double weight = 0;
  double gradient = 0;
};

/// Phases throw when this microbatch reaches them; -1: never.
struct fuse {
  std::atomic<int> microbatch{-1};
};
struct blown : std::exception {
  char const* what() const noexcept override { return "the fuse has blown"; }
};

struct Embed : st::Phase<st::attn> {
  using writes = st::values<hidden>;
  using saved = double;
  parameter* w;
  explicit Embed(parameter* p) : w(p) {}
  static double input(int microbatch) { return 0.3 + 0.17 * microbatch; }
  void forward(auto& io) { io[hidden{}] = w->weight * input(io.microbatch()); }
  void backward_input(auto& io) { io.saved() = double(io.grad(hidden{})); }
  void backward_weight(auto& io) { w->gradient += io.saved() * input(io.microbatch()); }
};

/// Two parameters, and an input whose gradient has three addends.
struct Attention : st::Phase<st::attn> {
  using reads = st::values<hidden>;
  using writes = st::values<tokens, probs, residual, routing>;
  parameter *w, *gate;
  Attention(parameter* p, parameter* q) : w(p), gate(q) {}
  void forward(auto& io) {
    double const h(io[hidden{}]);
    io[tokens{}] = h * w->weight;
    io[probs{}] = std::sin(h * gate->weight);
    io[residual{}] = h;
    io[routing{}] = ticket(2 + io.microbatch() % 3);
  }
  void backward_input(auto& io) {
    double const h(io[hidden{}]);
    io.grad(hidden{}) = double(io.grad(tokens{})) * w->weight +
                        double(io.grad(probs{})) * std::cos(h * gate->weight) * gate->weight +
                        double(io.grad(residual{}));
  }
  void backward_weight(auto& io) {
    double const h(io[hidden{}]);
    w->gradient += double(io.grad(tokens{})) * h;
    gate->gradient += double(io.grad(probs{})) * std::cos(h * gate->weight) * h;
  }
};

struct Dispatch : st::Phase<st::dispatch> {
  using reads = st::values<tokens, routing>;
  using writes = st::values<expert_in, handle>;
  void forward(auto& io) {
    io[expert_in{}] = double(io[tokens{}]) * io[routing{}].rows();
    io[handle{}] = ticket(10 * io[routing{}].rows());
  }
  void backward(auto& io) { io.grad(tokens{}) = double(io.grad(expert_in{})) * io[routing{}].rows(); }
};

struct Experts : st::Phase<st::mlp> {
  using reads = st::values<expert_in>;
  using writes = st::values<expert_out>;
  parameter* w;
  fuse* burns;
  explicit Experts(parameter* p, fuse* f = nullptr) : w(p), burns(f) {}
  void forward(auto& io) {
    if (burns != nullptr && burns->microbatch == io.microbatch()) throw blown();
    io[expert_out{}] = std::tanh(double(io[expert_in{}]) * w->weight);
  }
  void backward_input(auto& io) {
    if (burns != nullptr && burns->microbatch == -2 - io.microbatch()) throw blown();
    double const t = std::tanh(double(io[expert_in{}]) * w->weight);
    io.grad(expert_in{}) = double(io.grad(expert_out{})) * (1 - t * t) * w->weight;
  }
  void backward_weight(auto& io) {
    double const t = std::tanh(double(io[expert_in{}]) * w->weight);
    w->gradient += double(io.grad(expert_out{})) * (1 - t * t) * double(io[expert_in{}]);
  }
};

struct Combine : st::Phase<st::combine> {
  using reads = st::values<expert_out, probs, residual, handle>;
  using writes = st::values<hidden>;
  struct saved {
    double out, prob;
  };
  void forward(auto& io) {
    io.saved() = {double(io[expert_out{}]), double(io[probs{}])};
    io[hidden{}] = io.saved().out * io.saved().prob * io[handle{}].rows() / 16 + double(io[residual{}]);
  }
  void backward(auto& io) {
    double const g(io.grad(hidden{})), scale = io[handle{}].rows() / 16.0;
    io.grad(expert_out{}) = g * io.saved().prob * scale;
    io.grad(probs{}) = g * io.saved().out * scale;
    io.grad(residual{}) = g;
  }
};

/// `tokens` has a second reader, on another lane than the first.
struct SharedExperts : st::Phase<st::mlp> {
  using reads = st::values<expert_in, tokens>;
  using writes = st::values<expert_out, shared_out>;
  parameter *w, *shared;
  SharedExperts(parameter* p, parameter* q) : w(p), shared(q) {}
  void forward(auto& io) {
    io[expert_out{}] = std::tanh(double(io[expert_in{}]) * w->weight);
    io[shared_out{}] = std::sin(double(io[tokens{}]) * shared->weight);
  }
  void backward_input(auto& io) {
    double const t = std::tanh(double(io[expert_in{}]) * w->weight);
    io.grad(expert_in{}) = double(io.grad(expert_out{})) * (1 - t * t) * w->weight;
    io.grad(tokens{}) =
        double(io.grad(shared_out{})) * std::cos(double(io[tokens{}]) * shared->weight) * shared->weight;
  }
  void backward_weight(auto& io) {
    double const t = std::tanh(double(io[expert_in{}]) * w->weight);
    double const x(io[tokens{}]);
    w->gradient += double(io.grad(expert_out{})) * (1 - t * t) * double(io[expert_in{}]);
    shared->gradient += double(io.grad(shared_out{})) * std::cos(x * shared->weight) * x;
  }
};
struct SharedCombine : st::Phase<st::combine> {
  using reads = st::values<expert_out, shared_out, probs, residual, handle>;
  using writes = st::values<hidden>;
  struct saved {
    double out, prob;
  };
  void forward(auto& io) {
    io.saved() = {double(io[expert_out{}]), double(io[probs{}])};
    io[hidden{}] = io.saved().out * io.saved().prob * io[handle{}].rows() / 16 + double(io[shared_out{}]) +
                   double(io[residual{}]);
  }
  void backward(auto& io) {
    double const g(io.grad(hidden{})), scale = io[handle{}].rows() / 16.0;
    io.grad(expert_out{}) = g * io.saved().prob * scale;
    io.grad(shared_out{}) = g;
    io.grad(probs{}) = g * io.saved().out * scale;
    io.grad(residual{}) = g;
  }
};

struct DenseAttention : st::Phase<st::attn> {
  using reads = st::values<hidden>;
  using writes = st::values<normed, residual>;
  parameter* w;
  explicit DenseAttention(parameter* p) : w(p) {}
  void forward(auto& io) {
    double const h(io[hidden{}]);
    io[normed{}] = std::sin(h * w->weight);
    io[residual{}] = h;
  }
  void backward_input(auto& io) {
    double const h(io[hidden{}]);
    io.grad(hidden{}) =
        double(io.grad(normed{})) * std::cos(h * w->weight) * w->weight + double(io.grad(residual{}));
  }
  void backward_weight(auto& io) {
    double const h(io[hidden{}]);
    w->gradient += double(io.grad(normed{})) * std::cos(h * w->weight) * h;
  }
};
struct DenseMlp : st::Phase<st::mlp> {
  using reads = st::values<normed, residual>;
  using writes = st::values<hidden>;
  parameter* w;
  explicit DenseMlp(parameter* p) : w(p) {}
  void forward(auto& io) {
    io[hidden{}] = std::tanh(double(io[normed{}]) * w->weight) + double(io[residual{}]);
  }
  void backward_input(auto& io) {
    double const t = std::tanh(double(io[normed{}]) * w->weight);
    io.grad(normed{}) = double(io.grad(hidden{})) * (1 - t * t) * w->weight;
    io.grad(residual{}) = double(io.grad(hidden{}));
  }
  void backward_weight(auto& io) {
    double const t = std::tanh(double(io[normed{}]) * w->weight);
    w->gradient += double(io.grad(hidden{})) * (1 - t * t) * double(io[normed{}]);
  }
};

/// No parameters and one whole backward.
struct Squash : st::Phase<st::mlp> {
  using reads = st::values<hidden>;
  using writes = st::values<hidden>;
  static constexpr bool has_weights = false;
  void forward(auto& io) { io.out(hidden{}) = std::sin(double(io.in(hidden{}))); }
  void backward(auto& io) {
    io.grad_in(hidden{}) = double(io.grad_out(hidden{})) * std::cos(double(io.in(hidden{})));
  }
};

struct Head : st::Phase<st::mlp> {
  using reads = st::values<hidden>;
  using writes = st::values<loss>;
  parameter* w;
  double* losses;
  Head(parameter* p, double* out) : w(p), losses(out) {}
  void forward(auto& io) {
    double const h(io[hidden{}]), l = h * h * w->weight;
    io[loss{}] = l;
    losses[io.microbatch()] = l;
  }
  void backward_input(auto& io) { io.grad(hidden{}) = 2 * double(io[hidden{}]) * w->weight; }
  void backward_weight(auto& io) { w->gradient += double(io[hidden{}]) * double(io[hidden{}]); }
};

struct EmbedLayer : st::Block<Embed> {};
struct MoeLayer : st::Block<Attention, st::Detach, Dispatch, st::Detach, Experts, st::Detach, Combine> {};
struct SharedLayer
    : st::Block<Attention, st::Detach, Dispatch, st::Detach, SharedExperts, st::Detach, SharedCombine> {};
struct DenseLayer : st::Block<DenseAttention, st::Detach, DenseMlp> {};
/// Both phases in one node: the values between them are not detached.
struct FusedLayer : st::Block<DenseAttention, DenseMlp> {};
struct SquashLayer : st::Block<Squash> {};
struct HeadLayer : st::Block<Head> {};

struct Model : st::Blocks<EmbedLayer, MoeLayer, DenseLayer, HeadLayer> {};
struct OddModel : st::Blocks<HeadLayer, SharedLayer, FusedLayer, SquashLayer, EmbedLayer> {};

} // namespace toy
