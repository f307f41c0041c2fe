/// As written_by_products.cpp, for copies in graphs. initcheck looks at what they read before the graph has run, so sanitizer.py tells it not to look at
/// copies there; then it does not know what they write (initcheck_sees.cu asks for that). It is told before each launch of the graph, in such runs only.
#include "behind.hpp"
#include "told_to_initcheck.hpp"

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace {

struct range {
  void const* begin;
  std::size_t bytes;
};

/// What copies of bytes in a row write, those of graphs in the graph too. Other copies stay unknown, and are reported.
void add_copies(cudaGraph_t graph, std::vector<range>& to) {
  std::size_t count = 0;
  if (cudaGraphGetNodes(graph, nullptr, &count) != cudaSuccess) return;
  std::vector<cudaGraphNode_t> nodes(count);
  if (cudaGraphGetNodes(graph, nodes.data(), &count) != cudaSuccess) return;
  for (auto const node : nodes) {
    auto type = cudaGraphNodeTypeEmpty;
    static_cast<void>(cudaGraphNodeGetType(node, &type));
    cudaGraph_t child = nullptr;
    if (type == cudaGraphNodeTypeGraph && cudaGraphChildGraphNodeGetGraph(node, &child) == cudaSuccess)
      add_copies(child, to);
    cudaMemcpy3DParms copy{};
    if (type != cudaGraphNodeTypeMemcpy || cudaGraphMemcpyNodeGetParams(node, &copy) != cudaSuccess) continue;
    if (copy.dstArray || copy.extent.height > 1 || copy.extent.depth > 1 || copy.dstPos.y || copy.dstPos.z)
      continue;
    cudaPointerAttributes where{};
    auto const* const begin = static_cast<std::byte const*>(copy.dstPtr.ptr) + copy.dstPos.x;
    if (cudaPointerGetAttributes(&where, begin) == cudaSuccess && where.type == cudaMemoryTypeDevice)
      to.push_back({begin, copy.extent.width});
  }
}

bool copies_are_unseen() { return std::getenv("STRETTO_COPIES_UNSEEN") != nullptr; }

std::mutex guard;
std::map<cudaGraphExec_t, std::vector<range>> copies_of;

} // namespace

extern "C" {

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* made, cudaGraph_t graph, unsigned long long flags) {
  auto const status = test::behind<cudaError_t>("cudaGraphInstantiate", made, graph, flags);
  if (status != cudaSuccess || !copies_are_unseen()) return status;
  std::vector<range> copies;
  add_copies(graph, copies);
  std::lock_guard const lock(guard);
  copies_of[*made] = std::move(copies);
  return status;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t on) {
  std::vector<range> copies;
  {
    std::lock_guard const lock(guard);
    if (auto const found = copies_of.find(graph); found != copies_of.end()) copies = found->second;
  }
  for (auto const& each : copies) test::is_written(each.begin, each.bytes, on);
  return test::behind<cudaError_t>("cudaGraphLaunch", graph, on);
}

} // extern "C"
