#pragma once

#include "attention.hpp"
#include "expert_products.hpp"
#include "router.hpp"
#include "swiglu.hpp"
#include "values.hpp"

#include <stretto/adapters/torch/expert_functions.hpp>
#include <stretto/block.hpp>

#include <ATen/ATen.h>

#include <cmath>
#include <optional>
#include <utility>

namespace train_moe {

/// Attention, the shared experts, and the router's decision: rows leave in the order of the experts.
class AttentionAndRouter : public stretto::Phase<stretto::attn> {
public:
  using reads = stretto::values<hidden>;
  using writes = stretto::values<sorted_rows, log_weights, weights, residual, routing>;
  using saves = stretto::values<hidden, residual>;

  AttentionAndRouter(initializer const& init, double residual_deviation, step_data& step, int layer)
      : experts_(init.config().experts), top_k_(init.config().top_k), step_(&step), layer_(layer),
        attention_(init, residual_deviation), norm_(init, "experts.norm"), router_(init, step, layer) {
    if (init.config().shared > 0)
      shared_.emplace(init, "shared.up", "shared.down", init.config().shared * init.config().ffn,
                      residual_deviation);
  }

  void forward(auto& io) {
    auto const x = attention_(io[hidden{}]);
    auto const normed = norm_(x);
    auto const chosen = router_(normed, io.microbatch());
    row_way way(chosen.ids, experts_, *step_, layer_, io.microbatch());
    io[sorted_rows{}] = way.to_experts(normed.rows, top_k_);
    io[log_weights{}] = way.to_experts(chosen.log_weights.view({-1, 1}), 1);
    io[weights{}] = chosen.weights;
    io[residual{}] = shared_ ? x + (*shared_)(normed) : x;
    io[routing{}] = std::move(way);
  }

  router& routes() { return router_; }
  template <class Act> void for_each_parameter(Act&& f) {
    attention_.for_each_parameter(f);
    norm_.for_each_parameter(f);
    router_.for_each_parameter(f);
    if (shared_) shared_->for_each_parameter(f);
  }

private:
  int experts_;
  int top_k_;
  step_data const* step_;
  int layer_;
  attention attention_;
  norm norm_;
  router router_;
  std::optional<feed_forward> shared_;
};

/// Rows to the ranks of their experts.
template <class Comm> class Dispatch : public stretto::Phase<stretto::dispatch> {
public:
  using reads = stretto::values<sorted_rows, log_weights, routing>;
  using writes = stretto::values<arrived_rows, arrived_log_weights, exchange<Comm>>;
  using saves = stretto::values<>;
  using communicator = Comm;

  explicit Dispatch(Comm& comm) : comm_(&comm) {}

  void forward(auto& io) {
    typename Comm::routing const where{io[routing{}].rows()};
    auto arrived = stretto::torch::dispatch_rows(*comm_, io[sorted_rows{}], io[log_weights{}], where,
                                                 io[exchange<Comm>{}]);
    io[arrived_rows{}] = std::move(arrived.first);
    io[arrived_log_weights{}] = std::move(arrived.second);
  }

private:
  Comm* comm_;
};

/// The experts of this rank.
template <class Comm> class Experts : public stretto::Phase<stretto::mlp> {
public:
  using reads = stretto::values<arrived_rows, arrived_log_weights, exchange<Comm>>;
  using writes = stretto::values<expert_rows>;
  using saves = stretto::values<arrived_rows>;

  Experts(initializer const& init, double residual_deviation, int first, int count,
          expert_linears const& linears)
      : first_(first), linears_(linears),
        up_(init.experts("experts.up", first, count, {init.config().hidden, 2 * init.config().ffn},
                         1.0 / std::sqrt(init.config().hidden))),
        down_(init.experts("experts.down", first, count, {init.config().ffn, init.config().hidden},
                           residual_deviation)) {}

  void forward(auto& io) {
    auto const& rows = io[exchange<Comm>{}].rows();
    auto const both = linears_.plain(io[arrived_rows{}], rows, up_);
    io[expert_rows{}] = linears_.after_swiglu(both, io[arrived_log_weights{}], rows, down_);
  }
  template <class Act> void for_each_parameter(Act&& f) {
    f(model_parameter{&up_, first_});
    f(model_parameter{&down_, first_});
  }

private:
  int first_;
  expert_linears linears_;
  stretto::torch::parameter up_;
  stretto::torch::parameter down_;
};

/// Rows back to their tokens, weighted, added to the residual.
template <class Comm> class Combine : public stretto::Phase<stretto::combine> {
public:
  using reads = stretto::values<expert_rows, weights, residual, routing, exchange<Comm>>;
  using writes = stretto::values<hidden>;
  using saves = stretto::values<weights>;

  explicit Combine(Comm& comm) : comm_(&comm) {}

  void forward(auto& io) {
    auto const back = stretto::torch::combine_rows(*comm_, io[expert_rows{}], io[exchange<Comm>{}]);
    io[hidden{}] = io[routing{}].to_tokens(io[residual{}], back, io[weights{}]);
  }

private:
  Comm* comm_;
};

template <class Comm>
struct MoeLayer : stretto::Block<AttentionAndRouter, stretto::Detach, Dispatch<Comm>, stretto::Detach,
                                 Experts<Comm>, stretto::Detach, Combine<Comm>> {};

} // namespace train_moe
