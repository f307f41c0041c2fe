#pragma once

#include "../ranks/rank_communicator.hpp"
#include "step_runner.hpp"

#include <stretto/adapters/cuda/step_graph.hpp>
#include <stretto/adapters/torch_cuda/current_stream.hpp>
#include <stretto/adapters/torch_cuda/graph_memory.hpp>

#include <memory>
#include <utility>

namespace train_moe {

/// A step of any kind: run as it is the first time, captured the second, and replayed from then on. Collective over `Ranks`.
template <class Ranks> class graph_step : public step_runner {
public:
  graph_step(std::unique_ptr<step_runner> step, Ranks ranks, step_parts const& of)
      : step_(std::move(step)), board_(of.board), transport_(of.transport),
        graph_(
            {}, {}, std::move(ranks), [&board = of.board] { return board.failed(); }, of.deadline) {}

  void run() override {
    auto const issue = [this] { step_->run(); };
    if (!std::exchange(was_run_, true)) return graph_.warm(issue);
    if (!graph_.is_captured()) {
      graph_.capture(issue);
      if (transport_) transport_->step_was_captured();
    }
    graph_.replay();
    if (transport_) transport_->step_was_launched();
    graph_.wait();
    // It ends by itself where it was given up.
    if (board_.failed()) stretto::throw_step_error(board_.first());
  }

private:
  std::unique_ptr<step_runner> step_;
  stretto::host::failure_board& board_;
  rank_transport* transport_;
  stretto::cuda::step_graph<stretto::torch_cuda::current_stream, stretto::torch_cuda::graph_memory, Ranks>
      graph_;
  bool was_run_ = false;
};

/// For one of the ranks that share a graph, or for a rank with a graph of its own.
inline std::unique_ptr<step_runner> make_graph_step(std::unique_ptr<step_runner> step, step_parts const& of) {
  if (of.together) return std::make_unique<graph_step<rank_communicator>>(std::move(step), *of.together, of);
  return std::make_unique<graph_step<stretto::cuda::lone_rank>>(std::move(step), stretto::cuda::lone_rank{},
                                                                of);
}

} // namespace train_moe
