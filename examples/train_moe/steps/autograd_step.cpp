#include "step_runner.hpp"

#include "../model/walk_model.hpp"

#include <stretto/plan/messages.hpp>

#include <torch/csrc/autograd/autograd.h>

#include <cstddef>
#include <map>
#include <utility>

namespace train_moe {
namespace {

/// Runs the list of its rank on one thread: calls, and messages where the list has them.
class autograd_step : public step_runner {
public:
  explicit autograd_step(step_parts const& of)
      : model_(of.model), plan_(of.plan), facts_(of.plan.facts()),
        messages_(stretto::lower_messages(of.plan)), rank_(of.place.pipeline_rank()), peers_(of.peers) {
    for (auto const& each : model_.parameters())
      if (each.weight->trainable()) wanted_.push_back(each.weight);
  }

  void run() override {
    for (long i = 0; i < messages_.size(rank_); ++i) {
      stretto::plan_step const& step = messages_.steps(rank_)[i];
      bool const gradient = step.carries == stretto::traffic::gradient;
      stretto::message const about{gradient, step.stage, step.number, 0, step.peer};
      key const which{step.stage, step.number};
      switch (step.what) {
      case stretto::step_kind::run:
        run(plan_.calls(rank_)[step.number]);
        break;
      case stretto::step_kind::send:
        peers_.send(about, take(gradient ? gradients_ : activations_, which));
        break;
      case stretto::step_kind::receive:
        (gradient ? gradients_ : activations_)[which] = peers_.receive(about);
        break;
      }
    }
  }

private:
  using key = std::pair<int, int>; ///< stage and microbatch
  struct graph {
    walk_state<language_model::types> state;
    at::Tensor input, output;
  };

  static at::Tensor take(std::map<key, at::Tensor>& from, key const& which) {
    return std::move(from.extract(which).mapped());
  }

  void run(stretto::call const& one) {
    if (one.runs_forward()) forward(one.forward_chunk, one.forward_microbatch);
    if (one.runs_backward()) backward(one.backward_chunk, one.backward_microbatch);
  }

  void forward(int chunk, int microbatch) {
    int const stage = facts_.stage(rank_, chunk);
    auto& made = graphs_[{stage, microbatch}];
    if (stage > 0) made.input = take(activations_, {stage - 1, microbatch}).detach().requires_grad_();
    made.output = walk_chunk(model_, made.state, made.input, chunk, microbatch);
    if (stage + 1 < facts_.stages()) activations_[{stage, microbatch}] = made.output.detach();
  }

  void backward(int chunk, int microbatch) {
    int const stage = facts_.stage(rank_, chunk);
    graph const made = std::move(graphs_.extract({stage, microbatch}).mapped());
    torch::autograd::variable_list into;
    if (stage + 1 < facts_.stages()) into.push_back(take(gradients_, {stage + 1, microbatch}));
    // A chunk without layers passes on what it got.
    if (made.output.is_same(made.input)) {
      gradients_[{stage, microbatch}] = into[0];
      return;
    }
    torch::autograd::variable_list leaves;
    for (auto const* weight : wanted_) leaves.push_back(weight->leaf());
    if (stage > 0) leaves.push_back(made.input);
    auto const found =
        torch::autograd::grad({made.output}, leaves, into, /*retain_graph=*/{}, /*create_graph=*/false,
                              /*allow_unused=*/true);
    for (std::size_t i = 0; i < wanted_.size(); ++i)
      if (found[i].defined()) wanted_[i]->accumulate(found[i]);
    if (stage > 0) gradients_[{stage, microbatch}] = found.back();
  }

  language_model& model_;
  stretto::plan const& plan_;
  stretto::plan_facts const& facts_;
  stretto::plan_steps messages_;
  int rank_;
  stage_peers& peers_;
  std::vector<stretto::torch::parameter*> wanted_;
  std::map<key, at::Tensor> activations_, gradients_;
  std::map<key, graph> graphs_;
};

} // namespace

std::unique_ptr<step_runner> make_autograd_step(step_parts const& of) {
  return std::make_unique<autograd_step>(of);
}

} // namespace train_moe
