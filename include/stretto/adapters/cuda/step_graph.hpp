#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/error.hpp>
#include <stretto/adapters/cuda/follow.hpp>
#include <stretto/adapters/cuda/graph_launch.hpp>
#include <stretto/adapters/cuda/handles.hpp>
#include <stretto/adapters/cuda/joint_capture.hpp>
#include <stretto/adapters/cuda/share.hpp>

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// Where what a step allocates comes from while it is captured: memory that stays where it is as long as the graph may be
/// replayed. `lend(stream)` makes an object that lives as long as this thread captures, on that stream among others.
template <class Memory>
concept graph_memory = requires(Memory& memory, cudaStream_t capturing) {
  memory.lend(capturing);
};

/// For steps that allocate nothing.
struct no_graph_memory {
  struct lent {
    ~lent() {}
  };
  lent lend(cudaStream_t) const { return {}; }
};

/// The exchange of a rank that has a graph to itself.
struct lone_rank {
  static constexpr int rank() { return 0; }
  static constexpr int ranks() { return 1; }
  void exchange_counts(int const* send_rows, int* counts) const { *counts = *send_rows; }
  void all_to_all(void const* send, int const* send_rows, void* receive, int const*,
                  std::size_t row_bytes) const {
    std::memcpy(receive, send, static_cast<std::size_t>(*send_rows) * row_bytes);
  }
};

/// A communicator whose calls may be part of a graph: the host learns no counts from it.
template <class Communicator>
concept capturable_communicator = expert_communicator<Communicator> && Communicator::capturable &&
                                  Communicator::counts != counts_mode::host;

/// A whole step as one CUDA graph. Every replay launches the same kernels and copies over the same addresses: what changes
/// from step to step (tokens, parameters) must be written where the step was captured with it, and what the step leaves
/// (losses, gradients, counters) is read from where the capture put it. Nothing in a step may wait for the GPU.
///
///   graph.warm(step);     // an ordinary step
///   graph.capture(step);  // issues it again, and runs nothing
///   graph.replay();       // as often as you like
///
/// Ranks that are threads have a graph each where they do not meet in a step, or where what they meet in allows it (NCCL).
/// Those that copy into each other's memory share one: they make their `step_graph` together, over `Ranks`, an exchange of
/// host memory among them, and all calls are collective. Their exchanges are made with `exchange_options::waits =
/// hand_on_turn`.
template <stream_follower Follow = thread_stream, graph_memory Memory = no_graph_memory,
          row_exchange Ranks = lone_rank>
class step_graph {
public:
  /// `failed`: whether the step of these ranks has failed, such as a look at the board of their group. `deadline`: how long a
  /// rank waits at a capture while no other comes or goes; not for rank 0 to make the graph.
  explicit step_graph(Follow follow = {}, Memory memory = {}, Ranks ranks = {},
                      std::function<bool()> failed = {},
                      std::chrono::milliseconds deadline = std::chrono::seconds(30))
      : follow_(std::move(follow)), memory_(std::move(memory)), ranks_(std::move(ranks)),
        me_(static_cast<std::size_t>(ranks_.rank())), ones_(static_cast<std::size_t>(ranks_.ranks()), 1),
        counts_(ones_.size()) {
    std::shared_ptr<detail::joint_capture> made;
    if (me_ == 0) made = std::make_shared<detail::joint_capture>(ones_.size(), std::move(failed), deadline);
    all_ = detail::share(made, ranks_)[0];
  }
  step_graph(step_graph const&) = delete;
  step_graph& operator=(step_graph const&) = delete;
  ~step_graph() {
    static_cast<void>(cudaStreamSynchronize(stream_.get()));
    forget();
  }

  /// Runs `issue` once where it will be captured, and returns when it is done: kernels are loaded, workspaces and
  /// connections made, none of which a capture can do.
  template <class Issue> void warm(Issue&& issue) {
    begin();
    {
      [[maybe_unused]] auto const current = follow_.enter(stream_.get());
      issue();
    }
    check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    is_warm_ = true;
  }

  /// Issues the step into a graph. Communicators are named to be refused, when this is compiled, if they cannot be captured.
  /// Throws what `issue` throws, such as the error of the lanes with the op that cannot be captured.
  template <class Issue, capturable_communicator... Communicators>
  void capture(Issue&& issue, Communicators const&...) {
    if (!is_warm_)
      throw std::logic_error(
          "step_graph: a step is captured that was never run: call warm first, since the first use of a "
          "kernel, a workspace or a communicator cannot be captured");
    forget();
    begin();
    check(cudaStreamSynchronize(stream_.get()), "cudaStreamSynchronize");
    // Whoever gave up an earlier capture may still be at it.
    meet();
    if (me_ == 0) all_->reset();
    meet();
    if (me_ == 0)
      capture_all(issue);
    else
      take_part(issue);
    is_captured_ = true;
  }

  bool is_captured() const noexcept { return is_captured_; }
  /// Kernels, copies and joints of the graph; 0 on other ranks than the first.
  std::size_t nodes() const noexcept { return nodes_; }

  /// Who is to issue its nodes, from the next capture on.
  void launch_by(graph_launch wanted) noexcept { wanted_ = wanted; }
  /// Who issues the nodes of what was captured; for rank 0 to ask.
  graph_launch launched_by() const noexcept { return graph_.how(); }
  /// What the driver said of a graph whose nodes the GPU was to issue and does not; else empty. For rank 0 to ask.
  std::string const& why_by_host() const noexcept { return graph_.why_by_host(); }

  /// Launches the step behind what the current stream of every rank has done, and returns at once; what they do next runs
  /// behind the step.
  void replay() {
    if (!is_captured_)
      throw std::logic_error("step_graph: replay of a step that was not captured: call capture first");
    all_->before[me_].record(follow_.current());
    meet();
    if (me_ == 0) {
      for (auto const& each : all_->before) each.wait(stream_.get());
      graph_.launch(stream_.get());
      all_->ended.record(stream_.get());
    }
    meet();
    all_->ended.wait(follow_.current());
  }

  /// Returns when the last replay is done. Throws if something of it failed.
  void wait() const { all_->ended.synchronize(); }

private:
  void begin() {
    begun_.record(follow_.current());
    begun_.wait(stream_.get());
  }
  void meet() {
    if (ones_.size() > 1) ranks_.exchange_counts(ones_.data(), counts_.data());
  }
  void forget() {
    graph_.forget();
    is_captured_ = false;
    nodes_ = 0;
  }

  /// Rank 0, whose thread begins and ends the capture.
  template <class Issue> void capture_all(Issue& issue) {
    cudaGraph_t made = nullptr;
    bool whole = false, begun = false;
    try {
      check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal),
            "cudaStreamBeginCapture");
      begun = true;
      all_->fork.record(stream_.get());
      all_->open();
      take_turn(issue);
      whole = all_->wait_for_all();
      for (std::size_t rank = 1; rank < ones_.size() && whole; ++rank) all_->joins[rank].wait(stream_.get());
    } catch (...) {
      if (begun) static_cast<void>(all_->wait_for_all());
      discard(made);
      all_->end(false);
      throw;
    }
    try {
      if (!whole)
        throw std::runtime_error("step_graph: another rank could not issue its step into the graph");
      check(cudaStreamEndCapture(stream_.get(), &made), "the capture of a step (cudaStreamEndCapture)");
      check(cudaGraphGetNodes(made, nullptr, &nodes_), "cudaGraphGetNodes");
      graph_.make(made, wanted_, stream_.get());
      check(cudaGraphDestroy(std::exchange(made, nullptr)), "cudaGraphDestroy");
    } catch (...) {
      discard(made);
      forget();
      all_->end(false);
      throw;
    }
    all_->end(true);
  }
  void discard(cudaGraph_t made) {
    if (!made) static_cast<void>(cudaStreamEndCapture(stream_.get(), &made));
    if (made) static_cast<void>(cudaGraphDestroy(made));
    static_cast<void>(cudaGetLastError());
  }

  template <class Issue> void take_part(Issue& issue) {
    try {
      take_turn(issue);
    } catch (...) {
      // Until then the streams of this rank are part of a capture.
      static_cast<void>(all_->wait_for_end());
      static_cast<void>(cudaGetLastError());
      throw;
    }
    if (!all_->wait_for_end())
      throw std::runtime_error("step_graph: another rank could not issue its step into the graph");
  }

  template <class Issue> void take_turn(Issue& issue) {
    if (!all_->enter()) return;
    try {
      detail::turn_scope const mine(all_->turn);
      if (me_ != 0) all_->fork.wait(stream_.get());
      {
        [[maybe_unused]] auto const current = follow_.enter(stream_.get());
        [[maybe_unused]] auto const memory = memory_.lend(stream_.get());
        issue();
      }
      if (me_ != 0) all_->joins[me_].record(stream_.get());
    } catch (...) {
      all_->leave(false);
      throw;
    }
    all_->leave(true);
  }

  Follow follow_;
  Memory memory_;
  Ranks ranks_;
  std::size_t const me_;
  std::vector<int> ones_, counts_;
  std::shared_ptr<detail::joint_capture> all_;
  stream stream_;
  edge begun_;
  graph_launch wanted_ = graph_launch::by_host;
  detail::executable_graph graph_;
  std::size_t nodes_ = 0;
  bool is_warm_ = false, is_captured_ = false;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
