#pragma once

#include "phases.hpp"

/// The phases of a layer of experts: mix and route, dispatch, compute, combine. `Comm` is an expert communicator.
namespace own_tensors {

struct choice_rows : st::value {};
struct weights : st::value {};
struct residual : st::value {};
struct arrived : st::value {};
struct expert_rows : st::value {};
struct experts_chosen : st::metadata {
  using type = std::vector<int>;
};
template <class Comm> struct way : st::metadata { using type = typename Comm::handle; };

/// The mixer, and the router's decision: each word leaves once for each of its choices.
class MixAndRoute : public st::Phase<st::attn> {
public:
  using reads = st::values<hidden>;
  using writes = st::values<choice_rows, weights, residual, experts_chosen>;
  using saves = st::values<hidden>;
  struct saved {
    tensor mixed, probabilities, inner, logits_gradient;
    std::vector<int> expert;
    std::size_t bytes() const {
      return mixed.bytes() + probabilities.bytes() + inner.bytes() + logits_gradient.bytes();
    }
  };

  MixAndRoute(mixer mix, parameter& router, int top_k) : mix_(mix), router_(&router), top_k_(top_k) {}

  void forward(auto& io) {
    auto& kept = io.saved();
    kept.mixed = mix_.forward(io[hidden{}]);
    tensor sum = add(io[hidden{}], kept.mixed);
    kept.probabilities = softmax(product(sum, router_->weight));
    auto chosen = choose(kept.probabilities, top_k_);
    kept.expert = chosen.expert;
    io[choice_rows{}] = repeat_rows(sum, top_k_);
    io[weights{}] = std::move(chosen.weight);
    io[residual{}] = std::move(sum);
    io[experts_chosen{}] = std::move(chosen.expert);
  }
  void backward_input(auto& io) {
    auto& kept = io.saved();
    kept.logits_gradient = softmax_backward(
        choose_backward(io.grad(weights{}), kept.expert, router_->weight.columns()), kept.probabilities);
    tensor g = add(io.grad(residual{}), sum_repeated_rows(io.grad(choice_rows{}), top_k_));
    add_product_with_transposed(g, kept.logits_gradient, router_->weight);
    kept.inner = tanh_backward(g, kept.mixed);
    kept.probabilities = {};
    io.grad(hidden{}) = mix_.backward_input(g, kept.inner);
  }
  void backward_weight(auto& io) {
    auto& kept = io.saved();
    mix_.backward_weight(io[hidden{}], kept.inner);
    add_product_of_transposed(router_->gradient, add(io[hidden{}], kept.mixed), kept.logits_gradient);
  }

private:
  mixer mix_;
  parameter* router_;
  int top_k_;
};

/// Rows to the ranks of their experts.
template <class Comm> class Dispatch : public st::Phase<st::dispatch> {
public:
  using reads = st::values<choice_rows, experts_chosen>;
  using writes = st::values<arrived, way<Comm>>;
  using saves = st::values<>;
  using communicator = Comm;

  explicit Dispatch(Comm& comm) : comm_(&comm) {}

  void forward(auto& io) {
    io[arrived{}] = comm_->dispatch(io[choice_rows{}], {io[experts_chosen{}]}, io[way<Comm>{}]);
  }
  void backward(auto& io) {
    io.grad(choice_rows{}) = comm_->dispatch_backward(io.grad(arrived{}), io[way<Comm>{}]);
  }

private:
  Comm* comm_;
};

/// The experts of this rank: `tanh(x up) down`.
template <class Comm> class Experts : public st::Phase<st::mlp> {
public:
  using reads = st::values<arrived, way<Comm>>;
  using writes = st::values<expert_rows>;
  using saves = st::values<arrived>;
  struct saved {
    tensor activation, inner;
    std::vector<int> rows;
    std::size_t bytes() const { return activation.bytes() + inner.bytes(); }
  };

  Experts(std::vector<parameter*> up, std::vector<parameter*> down)
      : up_(std::move(up)), down_(std::move(down)) {}

  void forward(auto& io) {
    tensor const& x = io[arrived{}];
    auto& kept = io.saved();
    kept.rows = io[way<Comm>{}].rows();
    tensor sum(x.account(), x.rows(), up_[0]->weight.columns());
    each(kept, [&](std::size_t e, int first, int count) {
      add_product(sum.part(first, count), x.part(first, count), up_[e]->weight);
    });
    kept.activation = tanh(sum);
    tensor out(x.account(), x.rows(), x.columns());
    each(kept, [&](std::size_t e, int first, int count) {
      add_product(out.part(first, count), std::as_const(kept.activation).part(first, count),
                  down_[e]->weight);
    });
    io[expert_rows{}] = std::move(out);
  }
  void backward_input(auto& io) {
    tensor const& g = io.grad(expert_rows{});
    auto& kept = io.saved();
    tensor of_activation(g.account(), g.rows(), kept.activation.columns());
    each(kept, [&](std::size_t e, int first, int count) {
      add_product_with_transposed(of_activation.part(first, count), g.part(first, count), down_[e]->weight);
    });
    kept.inner = tanh_backward(of_activation, kept.activation);
    tensor of_input(g.account(), g.rows(), g.columns());
    each(kept, [&](std::size_t e, int first, int count) {
      add_product_with_transposed(of_input.part(first, count), std::as_const(kept.inner).part(first, count),
                                  up_[e]->weight);
    });
    io.grad(arrived{}) = std::move(of_input);
  }
  void backward_weight(auto& io) {
    auto const& kept = std::as_const(io.saved());
    tensor const& x = io[arrived{}];
    tensor const& g = io.grad(expert_rows{});
    each(kept, [&](std::size_t e, int first, int count) {
      add_product_of_transposed(up_[e]->gradient, x.part(first, count), kept.inner.part(first, count));
      add_product_of_transposed(down_[e]->gradient, kept.activation.part(first, count), g.part(first, count));
    });
  }

private:
  template <class Act> static void each(saved const& kept, Act&& f) {
    int first = 0;
    for (std::size_t e = 0; e < kept.rows.size(); first += kept.rows[e++])
      if (kept.rows[e] > 0) f(e, first, kept.rows[e]);
  }
  std::vector<parameter*> up_, down_;
};

/// Rows back to their words, weighted, added to the residual.
template <class Comm> class Combine : public st::Phase<st::combine> {
public:
  using reads = st::values<expert_rows, weights, residual, way<Comm>>;
  using writes = st::values<hidden>;
  using saves = st::values<weights>;
  struct saved {
    tensor rows;
    std::size_t bytes() const { return rows.bytes(); }
  };

  explicit Combine(Comm& comm) : comm_(&comm) {}

  void forward(auto& io) {
    io.saved().rows = comm_->combine(io[expert_rows{}], io[way<Comm>{}]);
    tensor sum = io[residual{}];
    add_weighted(sum, io.saved().rows, io[weights{}]);
    io[hidden{}] = std::move(sum);
  }
  void backward(auto& io) {
    tensor const& g = io.grad(hidden{});
    io.grad(residual{}) = g;
    io.grad(weights{}) = weights_gradient(g, io.saved().rows, io[weights{}].columns());
    io.grad(expert_rows{}) =
        comm_->combine_backward(weighted_rows_gradient(g, io[weights{}]), io[way<Comm>{}]);
  }

private:
  Comm* comm_;
};

} // namespace own_tensors
