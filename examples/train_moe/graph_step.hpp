#pragma once

#include "step_runner.hpp"

#include <stretto/adapters/cuda/step_graph.hpp>
#include <stretto/adapters/torch_cuda/current_stream.hpp>
#include <stretto/adapters/torch_cuda/graph_memory.hpp>

#include <memory>
#include <utility>

namespace train_moe {

/// A step of any kind: run as it is the first time, captured the second, and replayed from then on.
class graph_step : public step_runner {
public:
  explicit graph_step(std::unique_ptr<step_runner> step) : step_(std::move(step)) {}

  void run() override {
    auto const issue = [this] { step_->run(); };
    if (!std::exchange(was_run_, true)) return graph_.warm(issue);
    if (!graph_.is_captured()) graph_.capture(issue);
    graph_.replay();
    graph_.wait();
  }

private:
  std::unique_ptr<step_runner> step_;
  stretto::cuda::step_graph<stretto::torch_cuda::current_stream, stretto::torch_cuda::graph_memory> graph_;
  bool was_run_ = false;
};

} // namespace train_moe
