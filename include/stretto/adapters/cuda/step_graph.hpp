#pragma once

#include <stretto/adapter.hpp>
#include <stretto/adapters/cuda/error.hpp>
#include <stretto/adapters/cuda/follow.hpp>
#include <stretto/adapters/cuda/handles.hpp>

#include <cuda_runtime_api.h>

#include <concepts>
#include <stdexcept>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// Where what a step allocates comes from while it is captured: memory that stays where it is as long as the graph may be
/// replayed. `lend(stream)` makes an object that lives as long as the capture on that stream.
template <class M> concept graph_memory = requires(M& memory, cudaStream_t capturing) { memory.lend(capturing); };

/// For steps that allocate nothing.
struct no_graph_memory {
  struct lent {
    ~lent() {}
  };
  lent lend(cudaStream_t) const { return {}; }
};

/// A communicator whose calls may be part of a graph.
template <class C> concept capturable_communicator =
    expert_communicator<C> && C::capturable && C::counts == counts_mode::static_capacity;

/// A whole step as one CUDA graph. Every replay launches the same kernels and copies over the same addresses: what changes
/// from step to step (tokens, parameters) must be written where the step was captured with it, and what the step leaves
/// (losses, gradients, counters) is read from where the capture put it. Nothing in a step may wait for the GPU.
///
///   graph.warm(step);     // an ordinary step
///   graph.capture(step);  // issues it again, and runs nothing
///   graph.replay();       // as often as you like
///
/// Ranks that are threads have a graph each, also on one device; another thread's work is not captured.
template <stream_follower Follow = thread_stream, graph_memory Memory = no_graph_memory> class step_graph {
public:
  explicit step_graph(Follow follow = {}, Memory memory = {}) : follow_(std::move(follow)), memory_(std::move(memory)) {}
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
    wait();
    is_warm_ = true;
  }

  /// Issues the step into a graph. Communicators are named to be refused, when this is compiled, if they cannot be captured.
  /// Throws what `issue` throws, such as the error of the lanes with the op that cannot be captured.
  template <class Issue, capturable_communicator... Communicators> void capture(Issue&& issue, Communicators const&...) {
    if (!is_warm_)
      throw std::logic_error("step_graph: a step is captured that was never run: call warm first, since the first use of a "
                             "kernel, a workspace or a communicator cannot be captured");
    forget();
    begin();
    wait();
    check(cudaStreamBeginCapture(stream_.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    cudaGraph_t made = nullptr;
    try {
      [[maybe_unused]] auto const current = follow_.enter(stream_.get());
      [[maybe_unused]] auto const memory = memory_.lend(stream_.get());
      issue();
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(stream_.get(), &made));
      if (made) static_cast<void>(cudaGraphDestroy(made));
      static_cast<void>(cudaGetLastError());
      throw;
    }
    check(cudaStreamEndCapture(stream_.get(), &made), "the capture of a step (cudaStreamEndCapture)");
    auto const result = cudaGraphInstantiate(&graph_, made, 0);
    static_cast<void>(cudaGraphDestroy(made));
    check(result, "cudaGraphInstantiate");
    check(cudaGraphUpload(graph_, stream_.get()), "cudaGraphUpload");
    wait();
  }

  bool is_captured() const noexcept { return graph_ != nullptr; }

  /// Launches the step behind what the current stream has done, and returns at once; what the current stream does next runs
  /// behind the step.
  void replay() {
    if (!graph_) throw std::logic_error("step_graph: replay of a step that was not captured: call capture first");
    begin();
    check(cudaGraphLaunch(graph_, stream_.get()), "cudaGraphLaunch");
    ended_.record(stream_.get());
    ended_.wait(follow_.current());
  }

  /// Returns when the last step is done. Throws if something of it failed.
  void wait() { check(cudaStreamSynchronize(stream_.get()), "a step in a graph (cudaStreamSynchronize)"); }

private:
  void begin() {
    begun_.record(follow_.current());
    begun_.wait(stream_.get());
  }
  void forget() {
    if (graph_) static_cast<void>(cudaGraphExecDestroy(std::exchange(graph_, nullptr)));
  }

  Follow follow_;
  Memory memory_;
  stream stream_;
  edge begun_, ended_;
  cudaGraphExec_t graph_ = nullptr;
  bool is_warm_ = false;
};

} // namespace cuda
} // namespace v0
} // namespace stretto
