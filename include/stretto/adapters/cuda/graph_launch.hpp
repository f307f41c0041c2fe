#pragma once

#include <stretto/adapters/cuda/error.hpp>

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

namespace stretto {
inline namespace v0 {
namespace cuda {

/// Who issues the nodes of a graph when it is launched.
enum class graph_launch : unsigned char {
  by_host, ///< The driver, at a cost for every node.
  /// The GPU, which costs the host less (measured: 46 instead of 182 us for 13,676 nodes): the graph is the body of a
  /// conditional node that always holds. For steps that are bound by launches and have no copies beside kernels that fill the
  /// GPU: copies between host and GPU do not run beside such kernels then (measured: together 22.4 ms, the sum of both,
  /// instead of 12.0, the longer). A body has kernels, copies, fills and graphs of these, all of one GPU ("Conditional
  /// Node Body Graph Requirements" in NVIDIA's CUDA programming guide); the host launches any other. From CUDA 12.3 on.
  by_gpu
};

namespace detail {

/// A graph that can be launched.
class executable_graph {
public:
  executable_graph() = default;
  executable_graph(executable_graph const&) = delete;
  executable_graph& operator=(executable_graph const&) = delete;
  ~executable_graph() { forget(); }

  /// Makes it and brings it to the GPU of `on`. `graph` stays the caller's. Nothing of an earlier one may still run.
  void make(cudaGraph_t graph, graph_launch wanted, cudaStream_t on) {
    forget();
    if (wanted == graph_launch::by_gpu && make_body(graph, on)) return;
    instantiate(graph, on);
  }
  void launch(cudaStream_t on) { check(cudaGraphLaunch(graph_, on), "cudaGraphLaunch"); }
  void forget() noexcept {
    if (graph_) static_cast<void>(cudaGraphExecDestroy(std::exchange(graph_, nullptr)));
    how_ = graph_launch::by_host;
    why_by_host_.clear();
  }
  graph_launch how() const noexcept { return how_; }
  /// Where the GPU was to issue the nodes and does not; else empty.
  std::string const& why_by_host() const noexcept { return why_by_host_; }

private:
  void instantiate(cudaGraph_t graph, cudaStream_t on) {
    check(cudaGraphInstantiate(&graph_, graph, 0), "cudaGraphInstantiate");
    check(cudaGraphUpload(graph_, on), "cudaGraphUpload");
    check(cudaStreamSynchronize(on), "cudaStreamSynchronize");
  }
  /// Whether it can be a body.
  bool make_body(cudaGraph_t graph, cudaStream_t on) {
    cudaGraph_t around = nullptr;
    check(cudaGraphCreate(&around, 0), "cudaGraphCreate");
    try {
      put_into(around, graph);
      instantiate(around, on);
      how_ = graph_launch::by_gpu;
    } catch (error const& problem) {
      forget();
      why_by_host_ = problem.what();
    }
    check(cudaGraphDestroy(around), "cudaGraphDestroy");
    return how_ == graph_launch::by_gpu;
  }
  void put_into([[maybe_unused]] cudaGraph_t around, [[maybe_unused]] cudaGraph_t graph) {
#if CUDART_VERSION >= 12030
    cudaGraphNodeParams condition{};
    condition.type = cudaGraphNodeTypeConditional;
    condition.conditional.type = cudaGraphCondTypeIf;
    condition.conditional.size = 1;
    check(cudaGraphConditionalHandleCreate(&condition.conditional.handle, around, 1,
                                           cudaGraphCondAssignDefault),
          "cudaGraphConditionalHandleCreate");
    cudaGraphNode_t node = nullptr;
#if CUDART_VERSION >= 13000
    check(cudaGraphAddNode(&node, around, nullptr, nullptr, 0, &condition), "cudaGraphAddNode");
#else
    check(cudaGraphAddNode(&node, around, nullptr, 0, &condition), "cudaGraphAddNode");
#endif
    check(cudaGraphAddChildGraphNode(&node, condition.conditional.phGraph_out[0], nullptr, 0, graph),
          "cudaGraphAddChildGraphNode");
#else
    throw error(cudaErrorNotSupported, "a conditional node with a toolkit before CUDA 12.3");
#endif
  }

  cudaGraphExec_t graph_ = nullptr;
  graph_launch how_ = graph_launch::by_host;
  std::string why_by_host_;
};

} // namespace detail
} // namespace cuda
} // namespace v0
} // namespace stretto
