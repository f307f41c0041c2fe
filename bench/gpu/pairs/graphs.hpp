#pragma once

#include <stretto/adapters/cuda/handles.hpp>
#include <stretto/adapters/host/group.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace layer_pairs {

/// Lets the ranks take turns at one capture: whoever waits for another in an exchange lets go.
class capture_turns {
public:
  std::atomic<bool> captures{false};

  /// For `exchange_options::waits`.
  void waits(bool begins) {
    if (!captures) return;
    if (begins)
      turn_.unlock();
    else
      turn_.lock();
  }
  void lock() { turn_.lock(); }
  void unlock() { turn_.unlock(); }

private:
  std::mutex turn_;
};

/// A step of all ranks, captured: one graph where their streams wait for each other by events (`together`), else one for each.
class captured_step {
public:
  captured_step(capture_turns& turns, int ranks, bool together)
      : turns_(turns), together_(together), joins_(static_cast<std::size_t>(ranks)),
        graphs_(static_cast<std::size_t>(ranks)) {}
  captured_step(captured_step const&) = delete;
  captured_step& operator=(captured_step const&) = delete;
  ~captured_step() {
    for (auto const each : graphs_)
      if (each) static_cast<void>(cudaGraphExecDestroy(each));
  }

  /// Collective, while nothing is under way; `issue()` issues on `here` and on what it forks from it.
  template <class Issue>
  void record(stretto::host::communicator between, cudaStream_t here, Issue const& issue) {
    auto const rank = static_cast<std::size_t>(between.rank());
    bool const leads = !together_ || rank == 0;
    between.barrier();
    if (leads) {
      stretto::cuda::check(cudaStreamBeginCapture(here, cudaStreamCaptureModeThreadLocal),
                           "cudaStreamBeginCapture");
      if (together_) fork_.record(here);
    }
    if (together_ && leads) turns_.captures = true;
    between.barrier();
    if (together_) {
      std::lock_guard const mine(turns_);
      if (!leads) fork_.wait(here);
      issue();
      if (!leads) joins_[rank].record(here);
    } else {
      issue();
    }
    between.barrier();
    if (leads) {
      turns_.captures = false;
      if (together_)
        for (std::size_t other = 1; other < joins_.size(); ++other) joins_[other].wait(here);
      cudaGraph_t graph = nullptr;
      stretto::cuda::check(cudaStreamEndCapture(here, &graph), "cudaStreamEndCapture");
      auto const made = cudaGraphInstantiate(&graphs_[rank], graph, 0);
      static_cast<void>(cudaGraphDestroy(graph));
      stretto::cuda::check(made, "cudaGraphInstantiate");
      stretto::cuda::check(cudaGraphUpload(graphs_[rank], here), "cudaGraphUpload");
      stretto::cuda::check(cudaStreamSynchronize(here), "cudaStreamSynchronize");
    }
    between.barrier();
  }

  /// Rank 0 launches for all where there is one graph.
  void launch(int rank, cudaStream_t on) const {
    if (auto const mine = graphs_[static_cast<std::size_t>(rank)])
      stretto::cuda::check(cudaGraphLaunch(mine, on), "cudaGraphLaunch");
  }

private:
  capture_turns& turns_;
  bool together_;
  stretto::cuda::edge fork_;
  std::vector<stretto::cuda::edge> joins_;
  std::vector<cudaGraphExec_t> graphs_;
};

} // namespace layer_pairs
