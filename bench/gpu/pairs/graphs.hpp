#pragma once

#include <stretto/adapters/cuda/step_graph.hpp>
#include <stretto/adapters/host/group.hpp>

#include <optional>

namespace layer_pairs {

/// A rank's step as a graph: one of all ranks (`together`) where their streams wait for each other by events, else its own.
class captured_step {
public:
  /// Collective.
  captured_step(stretto::host::communicator const& between, stretto::host::failure_board const& board,
                bool together) {
    if (together)
      of_all_.emplace(stretto::cuda::thread_stream{}, stretto::cuda::no_graph_memory{}, between,
                      [&board] { return board.failed(); });
    else
      alone_.emplace();
  }
  template <class Issue> void capture(Issue const& issue) {
    each([&](auto& graph) {
      graph.warm(issue);
      graph.capture(issue);
    });
  }
  void replay() {
    each([](auto& graph) { graph.replay(); });
  }

private:
  template <class Call> void each(Call const& call) { of_all_ ? call(*of_all_) : call(*alone_); }

  std::optional<stretto::cuda::step_graph<>> alone_;
  std::optional<stretto::cuda::step_graph<stretto::cuda::thread_stream, stretto::cuda::no_graph_memory,
                                          stretto::host::communicator>>
      of_all_;
};

} // namespace layer_pairs
