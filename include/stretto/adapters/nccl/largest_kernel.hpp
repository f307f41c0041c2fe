#pragma once

#include <stretto/adapters/nccl/error.hpp>

#include <cuda.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

namespace stretto {
inline namespace v0 {
namespace nccl {

/// A capture that ends with its scope. What is captured belongs to NCCL's communicators as long as the graph lives.
class captured_graph {
public:
  template <class Issue> captured_graph(cudaStream_t on, Issue const& issue) {
    check(cudaStreamBeginCapture(on, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    try {
      issue(on);
    } catch (...) {
      static_cast<void>(cudaStreamEndCapture(on, &graph_));
      clear();
      throw;
    }
    check(cudaStreamEndCapture(on, &graph_), "cudaStreamEndCapture");
  }
  captured_graph(captured_graph const&) = delete;
  captured_graph& operator=(captured_graph const&) = delete;
  ~captured_graph() { clear(); }

  /// Thread blocks of the largest kernel in it; 0 if there is none.
  int largest_kernel() const {
    // The runtime knows kernels of its own program only, and NCCL brings its own: the driver knows all.
    void* call = nullptr;
    cudaDriverEntryPointQueryResult status{};
    constexpr char const* name = "cuGraphKernelNodeGetParams";
#if CUDART_VERSION >= 12050
    check(cudaGetDriverEntryPointByVersion(name, &call, 12000, cudaEnableDefault, &status), name);
#else
    check(cudaGetDriverEntryPoint(name, &call, cudaEnableDefault, &status), name);
#endif
    if (status != cudaDriverEntryPointSuccess || call == nullptr)
      throw error(std::string("the driver has no ") + name + "; install a newer one", ncclSystemError);
    auto const parameters_of = reinterpret_cast<CUresult (*)(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*)>(call);
    std::size_t count = 0;
    check(cudaGraphGetNodes(graph_, nullptr, &count), "cudaGraphGetNodes");
    std::vector<cudaGraphNode_t> nodes(count);
    if (count > 0) check(cudaGraphGetNodes(graph_, nodes.data(), &count), "cudaGraphGetNodes");
    unsigned most = 0;
    for (auto const each : nodes) {
      cudaGraphNodeType kind{};
      check(cudaGraphNodeGetType(each, &kind), "cudaGraphNodeGetType");
      if (kind != cudaGraphNodeTypeKernel) continue;
      CUDA_KERNEL_NODE_PARAMS of{};
      if (parameters_of(each, &of) != CUDA_SUCCESS) throw error(name, ncclUnhandledCudaError);
      most = (std::max)(most, of.gridDimX * of.gridDimY * of.gridDimZ);
    }
    return static_cast<int>(most);
  }

private:
  void clear() {
    if (graph_) static_cast<void>(cudaGraphDestroy(graph_));
  }

  cudaGraph_t graph_ = nullptr;
};

} // namespace nccl
} // namespace v0
} // namespace stretto
